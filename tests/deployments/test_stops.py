"""Stop sequences as a client of the HTTP stream sees them."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from models.mock import MockEngine
from tests.deployments.serving import chat, complete, events, make_app


async def streamed(pieces: list[str], stop: Any, **body: Any) -> tuple[list[str], dict[str, Any]]:
    answer = await chat(make_app(MockEngine("mock", pieces=pieces)), stream=True, stop=stop, **body)
    *chunks, done = events(answer.text)
    assert done == "[DONE]"
    choices = [chunk["choices"][0] for chunk in chunks]
    return [choice["delta"]["content"] for choice in choices[1:-1]], choices[-1]


@pytest.mark.parametrize("stop", ["STOP", ["xyz", "STOP"]])
async def test_no_prefix_of_a_stop_is_sent_one_character_a_piece(stop: Any) -> None:
    deltas, end = await streamed(list("So STop here STOP not there"), stop)
    assert "".join(deltas) == "So STop here "
    assert (end["finish_reason"], end["stop_reason"]) == ("stop", "STOP")


async def test_what_cannot_become_a_stop_is_sent_at_once() -> None:
    deltas, _ = await streamed(["Hello", " STO", "RY", " end"], "STOP")
    assert deltas == ["Hello", " ", "STORY", " end"]


async def test_a_stop_in_the_middle_of_a_piece_cuts_there() -> None:
    deltas, end = await streamed(["one two", " three four"], ["four", "three"])
    assert deltas == ["one two", " "]
    assert end["stop_reason"] == "three"


async def test_what_is_held_is_flushed_at_the_end() -> None:
    deltas, end = await streamed(["a", "ST"], "STOP")
    assert deltas == ["a", "ST"]
    assert (end["finish_reason"], end["stop_reason"]) == ("stop", None)
    deltas, end = await streamed(["a", "ST", "OP"], "STOP", max_tokens=2)
    assert deltas == ["a", "ST"]
    assert (end["finish_reason"], end["stop_reason"]) == ("length", None)


async def test_without_stops_nothing_is_held() -> None:
    for stop in (None, [], "", [""]):
        deltas, end = await streamed(["a", "b"], stop)
        assert deltas == ["a", "b"]
        assert end["stop_reason"] is None


async def test_a_stop_token_is_reported_by_its_id() -> None:
    deltas, end = await streamed(["a", "b", "c"], None, stop_token_ids=[1])
    assert deltas == ["a"]
    assert (end["finish_reason"], end["stop_reason"]) == ("stop", 1)


async def test_whole_answers_and_completions_stop_alike() -> None:
    app = make_app(MockEngine("mock", pieces=list("abcSTOPd")))
    whole = (await chat(app, stop="STOP")).json()["choices"][0]
    assert (whole["message"]["content"], whole["stop_reason"]) == ("abc", "STOP")
    choice = (await complete(app, stop=["STOP"])).json()["choices"][0]
    assert (choice["text"], choice["finish_reason"], choice["stop_reason"]) == (
        "abc",
        "stop",
        "STOP",
    )


@settings(max_examples=60, deadline=None)
@given(st.text("ab", max_size=12), st.lists(st.text("ab", min_size=1, max_size=3), max_size=3))
async def test_what_is_sent_is_the_text_before_the_first_stop(text: str, stops: list[str]) -> None:
    deltas, end = await streamed(list(text), stops)
    starts = [text.find(stop) for stop in stops if stop in text]
    assert "".join(deltas) == text[: min(starts, default=len(text))]
    assert (end["stop_reason"] is not None) == bool(starts)
    assert "" not in deltas
