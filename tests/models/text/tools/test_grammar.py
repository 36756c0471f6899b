"""What an answer under required calls may be, by the library that enforces it."""

from __future__ import annotations

import json
from typing import Any

import pytest
from llguidance import LLMatcher, LLTokenizer

from models.constrain.translate import translate
from models.request import ChatPrompt, GenerateRequest, Grammar, ToolChoice
from models.text.loading import byte_pipeline
from models.text.reasoning import FORMATS as REASONING
from models.text.tools.formats import FORMATS
from models.text.tools.grammar import TokenIds, whole_grammar
from tests.models.text.reasoning import reasoning_pipeline
from tests.models.text.vocabularies import id_of

FUNCTIONS: dict[str, dict[str, Any]] = {
    "get_weather": {
        "properties": {"city": {"type": "string"}, "days": {"$ref": "#/$defs/days"}},
        "required": ["city"],
        "$defs": {"days": {"type": "integer"}},
    },
    "now": {},
}
REQUIRED = ToolChoice("required")
NOW = '{"name": "now", "arguments": {}}'
WEATHER = '{"name": "get_weather", "arguments": {"city": "Paris", "days": 3}}'
NUMBER = Grammar("json_schema", '{"type": "integer"}')


@pytest.fixture(scope="module")
def tokenizer() -> LLTokenizer:
    vocabulary = byte_pipeline().vocabulary()
    eos = sorted(vocabulary.eos)
    return LLTokenizer(vocabulary.tokenizer, n_vocab=vocabulary.size, eos_token=eos)


def grammar_of(
    choice: ToolChoice,
    name: str = "json",
    *,
    reasoning: str | None = None,
    opened: bool = False,
    answer: Grammar | None = None,
    functions: dict[str, dict[str, Any]] = FUNCTIONS,
) -> Grammar | None:
    request = GenerateRequest(
        id="r",
        prompt=ChatPrompt(({"role": "user", "content": "Hi"},)),
        tool_choice=choice,
        grammar=answer,
    )
    return whole_grammar(
        request,
        functions,
        FORMATS[name],
        None if reasoning is None else REASONING[reasoning],
        opened=opened,
        ids=TokenIds({"[/THINK]": 257}.get, frozenset(range(256, 261))),
    )


def matches(tokenizer: LLTokenizer, grammar: Grammar | None, text: str) -> bool:
    assert grammar is not None
    matcher = LLMatcher(tokenizer, translate(grammar), log_level=0)
    assert not matcher.is_error(), matcher.get_error()
    whole = tokenizer.tokenize_str(text)
    return matcher.validate_tokens(whole) == len(whole) and (
        matcher.consume_tokens(whole) and matcher.is_accepting()
    )


@pytest.mark.parametrize(
    ("choice", "name", "text", "allowed"),
    [
        (REQUIRED, "json", NOW, True),
        (REQUIRED, "json", WEATHER, True),
        (REQUIRED, "json", f"[{NOW}, {WEATHER}]", True),
        (REQUIRED, "json", "[]", False),
        (REQUIRED, "json", "Hello", False),
        (REQUIRED, "json", '{"name": "other", "arguments": {}}', False),
        (REQUIRED, "json", '{"name": "get_weather", "arguments": {}}', False),
        (REQUIRED, "json", '{"name": "now", "arguments": {"a": 1}}', False),
        (ToolChoice("required", parallel=False), "json", NOW, True),
        (ToolChoice("required", parallel=False), "json", f"[{NOW}]", False),
        (ToolChoice("required", "now"), "json", NOW, True),
        (ToolChoice("required", "now"), "json", WEATHER, False),
        (REQUIRED, "hermes", f"<tool_call>\n{NOW}\n</tool_call>", True),
        (
            REQUIRED,
            "hermes",
            f"<tool_call>\n{NOW}\n</tool_call>\n<tool_call>\n{NOW}\n</tool_call>",
            True,
        ),
        (REQUIRED, "hermes", NOW, False),
        (REQUIRED, "llama", NOW.replace("arguments", "parameters") + "; " + WEATHER, False),
        (REQUIRED, "llama", (NOW + "; " + WEATHER).replace("arguments", "parameters"), True),
        (REQUIRED, "mistral", NOW, True),
    ],
)
def test_only_calls_are_allowed(
    tokenizer: LLTokenizer, choice: ToolChoice, name: str, text: str, allowed: bool
) -> None:
    assert matches(tokenizer, grammar_of(choice, name), text) is allowed


@pytest.mark.parametrize(
    ("opened", "text", "allowed"),
    [
        (True, f"Hm, </th <b>.\n</think>\n\n{NOW}", True),
        (True, NOW, False),
        (False, f"<think>Hm.</think>{NOW}", True),
        (False, NOW, True),
        (False, f"Hm.</think>{NOW}", False),
    ],
)
def test_reasoning_comes_first(
    tokenizer: LLTokenizer, opened: bool, text: str, allowed: bool
) -> None:
    grammar = grammar_of(REQUIRED, reasoning="think", opened=opened)
    assert matches(tokenizer, grammar, text) is allowed


@pytest.mark.parametrize("special", [False, True])
@pytest.mark.parametrize("name", ["think", "mistral"])
def test_markers_that_are_tokens_are_meant_as_such(name: str, special: bool) -> None:
    form = REASONING[name]
    text = reasoning_pipeline(name, special=special)
    begin, end = (id_of(text.tokenizer, marker) for marker in (form.begin, form.end))
    prompt = ChatPrompt(({"role": "user", "content": "Hi"},))
    grammar = text.encode(GenerateRequest(id="r", prompt=prompt, grammar=NUMBER)).grammar
    assert grammar is not None
    vocabulary = text.vocabulary()
    eos = sorted(vocabulary.eos)
    ids = LLTokenizer(vocabulary.tokenizer, n_vocab=vocabulary.size, eos_token=eos)
    matcher = LLMatcher(ids, translate(grammar), log_level=0)
    for thought, allowed in (
        ([*b"Hm. <b>"], True),
        ([], True),
        ([*"€".encode()[:2]], True),  # cut off within a character
        ([*b"Hm.", *eos], False),
        ([*b"Hm.", vocabulary.size - 1], False),  # which the tokenizer does not know
    ):
        answer = [begin, *thought, end, *b"42"]
        assert (matcher.validate_tokens(answer) == len(answer)) is allowed


@pytest.mark.parametrize(
    ("text", "allowed"), [("42", True), ("<think>Hm</think>42", True), (NOW, True), ("x", False)]
)
def test_where_json_is_wanted_a_call_may_stand_in(
    tokenizer: LLTokenizer, text: str, allowed: bool
) -> None:
    grammar = grammar_of(ToolChoice(), reasoning="think", answer=NUMBER)
    assert matches(tokenizer, grammar, text) is allowed


def test_what_needs_nothing_more_is_left_alone() -> None:
    regex = Grammar("regex", "a+")
    assert grammar_of(ToolChoice(), answer=regex, reasoning="think") is regex
    assert grammar_of(ToolChoice(), answer=NUMBER, functions={}) is NUMBER
    broken = Grammar("json_schema", "{")
    assert grammar_of(ToolChoice(), answer=broken) is broken
    assert grammar_of(ToolChoice()) is None


def test_the_tools_are_blamed_for_their_schemas() -> None:
    functions = {"f": {"properties": {"a": {"type": "nonsense"}}}}
    grammar = grammar_of(REQUIRED, functions=functions)
    assert grammar is not None
    assert grammar.param == "tools"


def test_a_function_takes_no_other_arguments_than_it_tells_of() -> None:
    inner = {"type": "object", "properties": {"a": {}}}
    for parameters, arguments in (
        ({}, {"type": "object", "properties": {}, "additionalProperties": False}),
        (inner, {**inner, "additionalProperties": False}),
        ({"additionalProperties": True}, {"type": "object", "additionalProperties": True}),
    ):
        grammar = grammar_of(REQUIRED, functions={"f": parameters})
        assert grammar is not None
        [line] = [one for one in grammar.source.splitlines() if one.startswith("arguments_0: ")]
        schema = json.loads(line.removeprefix("arguments_0: %json "))
        assert {k: v for k, v in schema.items() if k != "x-guidance"} == arguments
