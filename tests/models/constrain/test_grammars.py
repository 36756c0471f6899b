"""Grammars over the byte tokenizer: what they allow, what they refuse, what is kept."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from models.constrain.grammars import CACHED, COMPILERS, Grammars
from models.constrain.matcher import Matcher
from models.constrain.translate import MAX_SOURCE
from models.errors import Closed, Invalid
from models.request import Grammar, GrammarKind
from models.text.loading import byte_pipeline
from models.text.pipeline import Vocabulary

END = 257
ENDS = frozenset({END})
TEXT = byte_pipeline()


@pytest.fixture(scope="module")
def grammars() -> Iterator[Grammars]:
    made = Grammars(TEXT.vocabulary, TEXT.vocab_size)
    yield made
    made.close()


async def start(
    grammars: Grammars, kind: GrammarKind, source: Any = "", ends: frozenset[int] = ENDS
) -> Matcher:
    text = source if isinstance(source, str) else json.dumps(source)
    (matcher,) = await grammars.start(Grammar(kind, text, "guided_json"), ends, 1)
    return matcher


def allowed(matcher: Matcher) -> set[int]:
    bits = matcher.ruling.result().allowed
    return {token for token in range(len(bits) * 8) if bits[token // 8] >> token % 8 & 1}


def takes(matcher: Matcher, text: str) -> bool:
    """Whether ``text`` is a whole answer."""
    for byte in text.encode():
        ruling = matcher.ruling.result()
        assert ruling.error is None
        if ruling.finished or byte not in allowed(matcher):
            return False
        matcher.advance(byte)
    return END in allowed(matcher)


@pytest.mark.parametrize(
    ("kind", "source", "good", "bad"),
    [
        ("json_object", "", ["{}", '{"a": [1, null]}', '{\n  "a": "é\\n"\n}'], ["[]", "1", '"a"']),
        ("json_schema", {"type": "integer", "minimum": 3, "maximum": 12}, ["3", "12"], ["2", "13"]),
        ("json_schema", True, ["1", "[]", '"a"'], ["x"]),
        ("json_schema", {"properties": {"a": {}}}, ['{"a": 1}', "{}", "1"], ['{"b": 1}']),
        ("json_schema", {"pattern": r"^\d$"}, ['"1"'], ['"٣"']),
        ("regex", r"[a-c]{2}\d", ["ab1"], ["a1", "abc", "ab٣"]),
        ("regex", r"[\d_]\\d", [r"1\d", r"_\d"], ["11", r"٣\d"]),
        ("regex", "^(yes|no)$", ["yes", "no"], ["^yes", "maybe"]),
        (
            "choice",
            ["yes", "no", "été \n\"'\\/", "🎉"],
            ["yes", "été \n\"'\\/", "🎉"],
            ["ye", "on"],
        ),
        ("lark", 'start: "a" b+\nb: "b" | "c"', ["ab", "acb"], ["a", "b"]),
        ("gbnf", 'root ::= "(" root? ")"', ["()", "((()))"], ["(", "(()"]),
    ],
)
async def test_what_each_kind_takes(
    grammars: Grammars, kind: GrammarKind, source: Any, good: list[str], bad: list[str]
) -> None:
    for text in good:
        assert takes(await start(grammars, kind, source), text), text
    for text in bad:
        assert not takes(await start(grammars, kind, source), text), text


NESTED: dict[str, Any] = {"type": "integer"}
for _ in range(300):
    NESTED = {"type": "array", "items": NESTED}


@pytest.mark.parametrize(
    ("kind", "source", "message"),
    [
        ("json_schema", "{", "Expecting"),
        ("json_schema", "5", "must be an object"),
        ("json_schema", {"type": "foo"}, "Invalid type: foo"),
        ("json_schema", {"uniqueItems": True}, "uniqueItems"),
        ("json_schema", {"x-guidance": {"lenient": True}, "not": {}}, "not"),
        ("json_schema", {"$ref": "#"}, "no text can match"),
        ("json_schema", {"$ref": "https://example.com/schema"}, "https://example.com/schema"),
        ("json_schema", {"type": "integer", "minimum": 5, "maximum": 4}, "minimum"),
        ("json_schema", NESTED, "recursion"),
        ("json_schema", {"enum": ["x" * MAX_SOURCE]}, "longer than"),
        ("regex", "a(", "unclosed group"),
        ("regex", "(?=a)b", "look-around"),
        ("regex", "(" * 5000 + ")" * 5000, "nest"),
        ("choice", [], "at least one"),
        ("choice", [1], "string"),
        ("lark", "start: missing", "missing"),
        ("lark", 'start: start "a"', "no text can match"),
        ("lark", "start: " + "(" * 5000 + '"a"' + ")" * 5000, "nested"),
        ("gbnf", "root ::= missing", "missing"),
        ("gbnf", 'root ::= "a', "end of input"),
    ],
)
async def test_what_cannot_be_followed_is_refused(
    grammars: Grammars, kind: GrammarKind, source: Any, message: str
) -> None:
    for _ in range(2):  # a failure is kept, and told each time
        with pytest.raises(Invalid, match=message) as refused:
            await start(grammars, kind, source)
        assert refused.value.param == "guided_json"


async def test_white_space_is_bounded(grammars: Grammars) -> None:
    matcher = await start(grammars, "json_object")
    longest = 0
    for byte in b"{\n" + b" " * 100:
        if byte not in allowed(matcher):
            break
        matcher.advance(byte)
        longest += 1
    assert longest == 34
    assert not takes(await start(grammars, "json_object"), " {}")
    assert not takes(await start(grammars, "json_object"), "{} ")


async def test_after_the_end_only_its_signs_may_come(grammars: Grammars) -> None:
    matcher = await start(grammars, "regex", "ab", frozenset({END, 260, 10_000}))
    assert allowed(matcher) == {ord("a")}
    matcher.advance(ord("a"))
    matcher.advance(ord("b"))
    assert matcher.ruling.result().finished
    assert allowed(matcher) == {END, 260}


async def test_where_it_may_end_it_may_also_go_on(grammars: Grammars) -> None:
    matcher = await start(grammars, "regex", "a*", frozenset({260}))
    assert allowed(matcher) == {ord("a"), 260}
    matcher.advance(ord("a"))
    assert not matcher.ruling.result().finished


async def test_without_a_sign_of_its_end_it_goes_on_until_it_cannot(grammars: Grammars) -> None:
    matcher = await start(grammars, "regex", "a?b?", frozenset())
    assert allowed(matcher) == {ord("a"), ord("b")}
    matcher.advance(ord("b"))
    assert matcher.ruling.result().finished
    assert allowed(matcher)


async def test_of_several_ends_only_the_sequences_own_may_come() -> None:
    vocabulary = replace(TEXT.vocabulary(), eos=frozenset({END, 258, 259}))
    grammars = Grammars(lambda: vocabulary, TEXT.vocab_size)
    for ends in (frozenset[int](), frozenset({258}), frozenset({END, 258, 259})):
        matcher = await start(grammars, "regex", "a*", ends)
        assert allowed(matcher) == {ord("a"), *ends}
    grammars.close()


async def test_the_empty_answer_ends_at_once(grammars: Grammars) -> None:
    for ends in (ENDS, frozenset[int]()):
        matcher = await start(grammars, "lark", 'start: ""', ends)
        assert matcher.ruling.result().finished


async def test_a_token_that_was_not_allowed_is_an_error(grammars: Grammars) -> None:
    matcher = await start(grammars, "regex", "ab")
    matcher.advance(ord("x"))
    ruling = matcher.ruling.result()
    assert isinstance(ruling.error, Invalid)
    assert not ruling.finished


async def test_answers_to_one_request_are_followed_apart(grammars: Grammars) -> None:
    one, other = await grammars.start(Grammar("regex", "a(b|c)"), ENDS, 2)
    one.advance(ord("a"))
    assert allowed(one) == {ord("b"), ord("c")}
    assert allowed(other) == {ord("a")}


async def test_a_model_of_fewer_tokens_is_never_sent_beyond_them() -> None:
    narrow = Grammars(TEXT.vocabulary, ord("b") + 1)
    (matcher,) = await narrow.start(Grammar("regex", "[a-z]"), ENDS, 1)
    assert allowed(matcher) == {ord("a"), ord("b")}
    (matcher,) = await narrow.start(Grammar("regex", "[x-z]"), ENDS, 1)
    assert isinstance(matcher.ruling.result().error, Invalid)
    narrow.close()


async def test_a_tokenizer_that_cannot_is_told() -> None:
    def without() -> Any:
        raise ValueError("no bytes here")

    broken = Grammars(without, 10)
    with pytest.raises(Invalid, match="tokenizer cannot follow a grammar: no bytes here"):
        await broken.start(Grammar("json_object"), ENDS, 1)
    broken.close()


async def test_the_vocabulary_is_asked_once() -> None:
    asked: list[None] = []

    def vocabulary() -> Vocabulary:
        asked.append(None)
        return TEXT.vocabulary()

    grammars = Grammars(vocabulary, TEXT.vocab_size)
    for number in range(3):
        await grammars.start(Grammar("choice", json.dumps([str(number)])), ENDS, 1)
    assert len(asked) == 1
    grammars.close()


async def test_each_grammar_is_compiled_once_and_few_are_kept() -> None:
    """By grammars that fail, which are kept as others are: each one compiled asks again."""
    asked: list[None] = []

    def without() -> Vocabulary:
        asked.append(None)
        raise ValueError("no bytes here")

    grammars = Grammars(without, TEXT.vocab_size)

    async def compiled(*numbers: int) -> int:
        """How many of these had to be compiled."""
        before = len(asked)
        wanted = [Grammar("regex", str(number)) for number in numbers]
        starts = [grammars.start(grammar, ENDS, 1) for grammar in wanted]
        outcomes = await asyncio.gather(*starts, return_exceptions=True)
        assert all(isinstance(outcome, Invalid) for outcome in outcomes)
        return len(asked) - before

    assert await compiled(*[0] * 20) == 1
    assert await compiled(*range(CACHED)) == CACHED - 1
    assert await compiled(0, CACHED) == 1
    assert await compiled(0, 1) == 1  # what was asked for longest ago has gone
    grammars.close()


async def test_nobody_waits_long_for_a_grammar_to_compile() -> None:
    go_on = threading.Event()

    def vocabulary() -> Any:
        go_on.wait()
        return TEXT.vocabulary()

    grammars = Grammars(vocabulary, TEXT.vocab_size, compile_s=0.01)
    with pytest.raises(Invalid, match=r"longer than 0\.01 s"):
        await grammars.start(Grammar("regex", "a"), ENDS, 1)
    go_on.set()
    grammars.close()


async def test_closing_fails_who_waits_and_who_comes_later() -> None:
    go_on = threading.Event()

    def vocabulary() -> Any:
        go_on.wait()
        return TEXT.vocabulary()

    grammars = Grammars(vocabulary, TEXT.vocab_size)

    async def asked(number: int) -> list[Matcher]:
        return await grammars.start(Grammar("regex", "a" * number), ENDS, 1)

    waiting = [asyncio.create_task(asked(number)) for number in range(1, COMPILERS + 3)]
    await asyncio.sleep(0)
    threading.Timer(0.02, go_on.set).start()
    grammars.close()
    ended = await asyncio.gather(*waiting, asked(1), return_exceptions=True)
    assert {type(error) for error in ended} == {Closed}
