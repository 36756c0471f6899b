"""Stops in the text, from a model's tokens through the real decoder to the client's stream."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Any

import openai
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from starlette.applications import Starlette

from models.text.byte_tokenizer import CHAT_TEMPLATE
from models.text.pipeline import TextPipeline
from tests.deployments.serving import CHAT, HELLO, Exchange, chat, complete, events, listening
from tests.deployments.spelled import (
    EOS,
    FIRST_PIECE,
    answering,
    live_choices,
    pipeline,
    spelling,
    streamed,
    streams,
)
from tests.models.spelling import Spelling
from tests.models.text import vocabularies
from tests.models.text.searching import first_match, unsettled
from tests.models.text.vocabularies import id_of

FAMILY = "\N{MAN}\N{ZERO WIDTH JOINER}\N{WOMAN}\N{ZERO WIDTH JOINER}\N{GIRL}"
THUMB = "\N{THUMBS UP SIGN}\N{EMOJI MODIFIER FITZPATRICK TYPE-4}"
CHARACTERS = f"é ありがとう {FAMILY} e\N{COMBINING ACUTE ACCENT} {THUMB}."

IN_STEP: list[tuple[str, list[str]]] = [
    ("So STop here STOP not there", ["STOP"]),
    ("So STop here STOP not there", ["xyz", "STOP", "STOPPED"]),
    ("STSTSTOP", ["STOP"]),
    ("aaaab, then aab", ["aab"]),
    ("an xab", ["xay", "ab"]),
    ("held to the end ST", ["STOP"]),
    ("nothing to hold", []),
    ("nothing to hold", [""]),
    ("ありがとう、またあした", ["ありがたい", "また明日", "した"]),
    (CHARACTERS, ["zzz"]),
    (CHARACTERS, [f"{FAMILY}!", THUMB]),
]


def settled(text: str, stops: list[str]) -> str:
    """What a client must have by now: all that cannot become a stop."""
    match = first_match(text, stops)
    return text[: match[0]] if match else text.removesuffix(unsettled(text, stops))


Choices = AsyncGenerator[dict[str, Any], None]


async def follow(model: Spelling, pieces: list[bytes], stops: list[str], choices: Choices) -> None:
    """Lets the model go on only when the client has all that is due, in one delta."""
    sent = ""
    for count in range(1, len(pieces) + 1):
        model.let(1)
        due = settled(b"".join(pieces[:count]).decode(errors="ignore"), stops)
        if due != sent:
            assert sent + await next_content(choices) == due
            sent = due
    model.let(1)
    text = b"".join(pieces).decode()
    match = first_match(text, stops)
    held = "" if match else text.removeprefix(sent)
    *rest, end = [choice async for choice in choices]
    assert [choice["delta"]["content"] for choice in rest] == [held] * bool(held)
    assert end["stop_reason"] == (match[1] if match else None)


async def next_content(choices: Choices) -> str:
    choice = await anext(choices)
    if choice["delta"].get("role"):
        choice = await anext(choices)
    content: str = choice["delta"]["content"]
    return content


def in_bytes(text: str) -> list[bytes]:
    return [bytes([byte]) for byte in text.encode()]


@pytest.mark.parametrize(("text", "stops"), IN_STEP)
async def test_each_token_sends_at_once_all_that_it_settles(text: str, stops: list[str]) -> None:
    model = spelling(text, paced=True)
    with answering(model) as app:
        await follow(model, in_bytes(text), stops, ask(app, stops))


async def test_each_piece_of_several_characters_too() -> None:
    pieces = ["one two", "STOR", "Y ST", "OP it"]
    model = spelling([FIRST_PIECE + i for i in range(len(pieces))], paced=True)
    with answering(model, pipeline(*pieces)) as app:
        stops = ["STORM", "STOP"]
        await follow(model, [piece.encode() for piece in pieces], stops, ask(app, stops))


def ask(app: Starlette, stops: list[str]) -> Choices:
    body = {"model": "mock", "messages": HELLO, "stream": True, "stop": stops, "temperature": 0}
    return live_choices(Exchange(app, CHAT, body))


async def test_over_a_socket_too() -> None:
    text, stops = "So STop, é here STOP", ["STOP"]
    model = spelling(text, paced=True)
    with answering(model) as app, listening(app) as url:
        await follow(model, in_bytes(text), stops, ask_by_client(url, stops))


async def ask_by_client(url: str, stops: list[str]) -> Choices:
    async with openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="x") as client:
        stream = await client.chat.completions.create(
            model="mock",
            messages=[{"role": "user", "content": "Hello there"}],
            stream=True,
            stop=stops,
            temperature=0,
        )
        async for chunk in stream:
            yield chunk.choices[0].model_dump()


ENDINGS: list[tuple[str, Any, str, str | None, int]] = [
    ("one two three four", ["four", "three"], "one two ", "three", 13),
    ("no STOPPED", ["STOPPED", "STOP"], "no ", "STOP", 7),
    ("no abcdef", ["bcd", "abcde"], "no ", "abcde", 8),
    ("no abcdX", ["bc", "abcdef"], "no a", "bc", 6),
    ("no abcd", ["bc", "abcdef"], "no a", "bc", 6),
    ("twice is once STOP", ["STOP", "STOP", "", "STOP"], "twice is once ", "STOP", 18),
    ("ありがとう!", "とう", "ありが", "とう", 15),
    (f"a {FAMILY} b", FAMILY, "a ", FAMILY, 2 + len(FAMILY.encode())),
    ("é or e\N{COMBINING ACUTE ACCENT}!", "e\N{COMBINING ACUTE ACCENT}", "é or ", "e\u0301", 9),
    ("at the end STO", "STOP", "at the end STO", None, 15),
    ("STOP", "STOP", "", "STOP", 4),
]


@pytest.mark.parametrize(("text", "stop", "shown", "matched", "tokens"), ENDINGS)
async def test_an_answer_ends_before_its_first_stop(
    text: str, stop: Any, shown: str, matched: str | None, tokens: int
) -> None:
    answer = await streamed(spelling(text), stop)
    assert answer.text == shown
    assert answer.ending == ("stop", matched, tokens)
    with answering(spelling(text)) as app:
        whole = (await chat(app, stop=stop)).json()
        lines = (await complete(app, stop=stop, max_tokens=99, stream=True)).text
    [choice] = whole["choices"]
    assert (choice["message"]["content"], choice["stop_reason"]) == (shown, matched)
    assert whole["usage"]["completion_tokens"] == tokens
    choices = [chunk["choices"][0] for chunk in events(lines)[:-1]]
    assert "".join(choice["text"] for choice in choices) == shown
    assert choices[-1]["stop_reason"] == matched


async def test_a_stop_in_the_middle_of_a_piece_cuts_there() -> None:
    pieces = pipeline("one two", " thr", "ee four")
    answer = await streamed(
        spelling([FIRST_PIECE + i for i in range(3)]), ["four", "three"], pieces
    )
    assert answer.text == "one two "
    assert answer.ending == ("stop", "three", 3)


async def test_what_is_held_is_flushed_at_the_length_limit() -> None:
    answer = await streamed(spelling("a STOP"), "STOP", max_tokens=5)
    assert answer.deltas[-1] == "STO"
    assert (answer.text, answer.ending) == ("a STO", ("length", None, 5))
    answer = await streamed(spelling("aé"), "STOP", max_tokens=2)
    assert (answer.text, answer.ending) == ("a\N{REPLACEMENT CHARACTER}", ("length", None, 2))


async def test_a_stop_within_the_first_min_tokens_does_not_count() -> None:
    answer = await streamed(spelling("a..b..c"), "..", min_tokens=4)
    assert (answer.text, answer.ending) == ("a..b", ("stop", "..", 6))
    answer = await streamed(spelling("a.b.c"), ".", min_tokens=2)
    assert (answer.text, answer.ending) == ("a.b", ("stop", ".", 4))


@pytest.mark.parametrize("stop", [None, "zzz", f"{FAMILY}\N{BOY}"])
async def test_characters_of_byte_fallback_tokens_come_whole(stop: str | None) -> None:
    tokenizer = vocabularies.byte_fallback()
    text = TextPipeline(
        tokenizer, special_tokens={"eos_token": "</s>"}, chat_template=CHAT_TEMPLATE
    )
    spelled = [vocabularies.BYTE + byte for byte in CHARACTERS.encode()]
    answer = await streamed(spelling(spelled, end=id_of(tokenizer, "</s>")), stop, text)
    assert answer.text == CHARACTERS
    assert answer.ending == ("stop", None, len(spelled) + 1)


async def test_a_stop_in_one_of_two_choices_leaves_the_other_alone() -> None:
    with answering(spelling("A STOP and more", "B goes on to its end")) as app:
        seeds = [await streams(app, n=2, stop="STOP", seed=seed) for seed in range(8)]
    mixed = [pair for pair in seeds if pair[0].text != pair[1].text]
    assert mixed
    for pair in mixed:
        stopped, other = sorted(pair, key=lambda answer: answer.text)
        assert (stopped.text, other.text) == ("A ", "B goes on to its end")
        assert (stopped.end["stop_reason"], other.end["stop_reason"]) == ("STOP", None)
        assert stopped.usage["completion_tokens"] == len("A STOP") + len(other.text) + 1


async def test_a_choice_that_stopped_is_computed_no_further() -> None:
    model = spelling("A STOP and " + "on" * 20, "B STO and " + "on" * 20)
    with answering(model) as app:
        counts = []
        for seed in range(4):
            before = model.made
            texts = {one.text for one in await streams(app, n=2, stop="STOP", seed=seed)}
            counts += [model.made - before] * (len(texts) == 2)
    assert counts
    assert max(counts) < 80


alphabet = st.sampled_from("abé")


@settings(max_examples=40, deadline=None)
@given(st.text(alphabet, max_size=12), st.lists(st.text(alphabet, max_size=3), max_size=4))
async def test_what_is_sent_is_the_text_before_the_first_stop(text: str, stops: list[str]) -> None:
    answer = await streamed(spelling(text), stops)
    match = first_match(text, stops)
    assert answer.text == (text[: match[0]] if match else text)
    taken = text[: match[0] + len(match[1])].encode() if match else [*text.encode(), EOS]
    assert answer.ending == ("stop", match[1] if match else None, len(taken))
