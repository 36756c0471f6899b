"""Stops that are tokens, from a model through the real decoder to the client's stream."""

from __future__ import annotations

from typing import Any

import pytest

from models.text.byte_tokenizer import END
from tests.deployments.serving import chat, complete
from tests.deployments.spelled import (
    EOS,
    FIRST_PIECE,
    USER,
    answering,
    pipeline,
    spelling,
    streamed,
)

CONTROL = [*b"Hi", USER, *b" there"]

ENDINGS: list[tuple[list[int], dict[str, Any], str, tuple[str, str | int | None, int]]] = [
    ([*b"Hi"], {}, "Hi", ("stop", None, 3)),
    ([], {}, "", ("stop", None, 1)),
    ([*b"Hi"], {"stop": END}, "Hi", ("stop", END, 3)),
    ([*b"Hi"], {"stop": END, "ignore_eos": True}, "Hi", ("stop", END, 3)),
    ([*b"Hi"], {"stop_token_ids": [EOS]}, "Hi", ("stop", EOS, 3)),
    ([EOS, *b"no"], {"stop": [END, "STOP"]}, "", ("stop", END, 1)),
    (CONTROL, {}, "Hi there", ("stop", None, 10)),
    (CONTROL, {"stop": ["no", "<|user|>"]}, "Hi", ("stop", "<|user|>", 3)),
    (CONTROL, {"stop": ["<|user|>", "<|user|>"]}, "Hi", ("stop", "<|user|>", 3)),
    (CONTROL, {"stop_token_ids": [USER, USER]}, "Hi", ("stop", USER, 3)),
    (CONTROL, {"stop": "<|user|>", "stop_token_ids": [USER]}, "Hi", ("stop", "<|user|>", 3)),
    (CONTROL, {"stop": "<|user|> there"}, "Hi there", ("stop", None, 10)),
    ([*b"a\nb"], {"stop": "\n"}, "a", ("stop", "\n", 2)),
    ([*b"a\nb"], {"stop_token_ids": [10]}, "a", ("stop", 10, 2)),
]


@pytest.mark.parametrize(("answer", "wishes", "shown", "ending"), ENDINGS)
async def test_a_token_that_stops_never_shows(
    answer: list[int],
    wishes: dict[str, Any],
    shown: str,
    ending: tuple[str, str | int | None, int],
) -> None:
    seen = await streamed(spelling(answer), **wishes)
    assert (seen.text, seen.ending) == (shown, ending)
    with answering(spelling(answer)) as app:
        whole = (await chat(app, temperature=0, **wishes)).json()
        completion = (await complete(app, temperature=0, **wishes)).json()
    for body in (whole, completion):
        [choice] = body["choices"]
        tokens = body["usage"]["completion_tokens"]
        assert (choice["finish_reason"], choice["stop_reason"], tokens) == ending
    assert whole["choices"][0]["message"]["content"] == shown
    assert completion["choices"][0]["text"] == shown


@pytest.mark.parametrize("name", ["<|user|>", END])
async def test_plain_text_that_spells_a_control_token_is_no_token(name: str) -> None:
    token = {"<|user|>": USER, END: EOS}[name]
    text = f"Hi {name} there"
    answer = await streamed(spelling(text), stop_token_ids=[token])
    assert answer.text == text
    assert answer.ending[:2] == ("stop", token if token == EOS else None)
    answer = await streamed(spelling(text), "there")
    assert answer.text == f"Hi {name} "


@pytest.mark.parametrize("name", ["<|user|>", END])
async def test_plain_text_that_spells_a_stop_is_one(name: str) -> None:
    """The client asked for this text: how the model came to write it does not matter."""
    answer = await streamed(spelling(f"Hi {name} there"), name)
    assert (answer.text, answer.ending) == ("Hi ", ("stop", name, 3 + len(name)))


async def test_what_is_held_is_flushed_where_a_token_stops() -> None:
    for stop in ("<|user|>", END):
        token = USER if stop == "<|user|>" else EOS
        answer = await streamed(spelling([*b"a ST", token, *b"OP"]), ["STOP", stop])
        assert answer.deltas[-1] == "ST"
        assert (answer.text, answer.ending) == ("a ST", ("stop", stop, 5))
    answer = await streamed(spelling("a ST"), "STOP")
    assert (answer.text, answer.ending) == ("a ST", ("stop", None, 5))


async def test_a_control_token_within_a_stop_or_a_character_changes_no_text() -> None:
    answer = await streamed(spelling([*b"a ST", USER, *b"OP"]), "STOP")
    assert (answer.text, answer.ending) == ("a ", ("stop", "STOP", 7))
    first, *rest = "あ".encode()
    answer = await streamed(spelling([first, USER, *rest]))
    assert answer.deltas == ["あ"]


async def test_without_eos_an_answer_goes_on_to_its_limit() -> None:
    spelled = [*b"Hi", EOS, *b" there"]
    answer = await streamed(spelling(spelled), ignore_eos=True, max_tokens=9)
    assert (answer.text, answer.ending) == ("Hi there", ("length", None, 9))


async def test_an_added_token_stops_by_its_id_and_by_its_text() -> None:
    tool = pipeline("<tool>")
    for call in ([FIRST_PIECE], [*b"<tool>"]):
        answer = await streamed(spelling([*b"a ", *call, *b"b"]), "<tool>", tool)
        assert (answer.text, answer.ending) == ("a ", ("stop", "<tool>", 2 + len(call)))
    answer = await streamed(spelling([*b"a ", FIRST_PIECE, *b"b"]), None, tool)
    assert answer.text == "a <tool>b"
