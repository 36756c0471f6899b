from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import replace

import pytest

from deployments.streams import generate
from models.errors import Busy, TimedOut
from models.events import Event, Finished, FinishReason, Started, Text, Usage
from models.mock import MockEngine
from models.request import GenerateRequest, TextPrompt
from tests.deployments.schemas import check
from tests.deployments.serving import chat, complete, events, eventually, make_app


class Odd:
    """An engine that does not keep its word."""

    name = "mock"
    max_context = 100

    def __init__(self, *events: Event, cancels: bool = False) -> None:
        self.events = events
        self.cancels = cancels
        self.closed = False

    async def generate(self, request: GenerateRequest) -> AsyncGenerator[Event, None]:
        try:
            for event in self.events:
                yield event
            if self.cancels:
                raise asyncio.CancelledError
        finally:
            self.closed = True


def asked(prompts: int) -> list[GenerateRequest]:
    return [GenerateRequest(id=str(i), prompt=TextPrompt("a")) for i in range(prompts)]


@pytest.mark.parametrize("stream", [False, True])
async def test_a_silent_engine_is_given_up_before_the_answer(stream: bool) -> None:
    engine = MockEngine("mock", first_token_s=60)
    app = make_app(engine, request_timeout_s=0.02)
    for answer in (await chat(app, stream=stream), await complete(app, prompt=["a", "b"])):
        assert answer.status_code == 504
        assert answer.headers["x-should-retry"] == "false"
        check("ErrorResponse", answer.json())
        assert answer.json()["error"]["code"] == "timeout"
    assert engine.live == 0


async def test_a_silent_engine_is_given_up_in_the_stream() -> None:
    engine = MockEngine("mock", inter_token_s=60)
    answer = await chat(make_app(engine, request_timeout_s=0.02), stream=True)
    *_, error = events(answer.text)
    assert error["error"]["code"] == "timeout"
    assert engine.live == 0


async def test_the_wait_is_for_each_event_alone() -> None:
    engine = MockEngine("mock", pieces=["a"] * 10, inter_token_s=0.02)
    answer = await chat(make_app(engine, request_timeout_s=0.15))
    assert answer.status_code == 200


@pytest.mark.parametrize("prompts", [1, 2])
async def test_a_slow_reader_is_not_the_engines_silence(prompts: int) -> None:
    engine = MockEngine("mock", pieces=["a"])
    seen = []
    async with aclosing(generate(engine, asked(prompts), 0.02)) as numbered:
        async for _, event in numbered:
            seen.append(event)
            await asyncio.sleep(0.05)
    assert sum(isinstance(event, Finished) for event in seen) == prompts


@pytest.mark.parametrize("prompts", [1, 2])
async def test_a_cancelled_reader_is_cancelled(prompts: int) -> None:
    engine = MockEngine("mock", first_token_s=60)
    reading = asyncio.ensure_future(anext(generate(engine, asked(prompts), 60.0)))
    await eventually(lambda: engine.live == prompts)
    reading.cancel()
    with pytest.raises(asyncio.CancelledError):
        await reading
    assert engine.live == 0


CANCELLED = Finished(FinishReason.CANCELLED, Usage(1, 1))


@pytest.mark.parametrize(
    "said",
    [(), (Started(1, 0),), (Started(1, 0), Text("a")), (Started(1, 0), Text("a"), CANCELLED)],
)
async def test_an_engine_that_ends_too_early_failed(said: tuple[Event, ...]) -> None:
    assert (await chat(make_app(Odd(*said)))).status_code == 500
    answer = await chat(make_app(Odd(*said)), stream=True)
    if said:
        *_, error = events(answer.text)
        check("ErrorResponse", error)
    else:
        assert answer.status_code == 500


@pytest.mark.parametrize("prompt", ["a", ["a", "b"]])
@pytest.mark.parametrize("said", [(), (Started(1, 0),)])
async def test_an_engine_that_cancels_itself_failed(
    said: tuple[Event, ...], prompt: str | list[str]
) -> None:
    engine = Odd(*said, cancels=True)
    app = make_app(engine)
    assert (await complete(app, prompt=prompt)).status_code == 500
    answer = await complete(app, prompt=prompt, stream=True)
    assert answer.status_code == 500  # nothing had been said yet
    assert "gave this request up" in answer.text
    assert engine.closed


@pytest.mark.parametrize("stream", [False, True])
async def test_a_timeout_of_its_own_before_the_answer(stream: bool) -> None:
    engine = MockEngine("mock", first_token_s=60)
    app = make_app(engine)
    for answer in (
        await chat(app, stream=stream, timeout=0.02),
        await complete(app, prompt=["a", "b"], timeout=0.02),
    ):
        assert answer.status_code == 504
        assert answer.headers["x-should-retry"] == "false"
        check("ErrorResponse", answer.json())
        assert answer.json()["error"]["code"] == "timeout"
    assert engine.live == 0


async def test_a_timeout_of_its_own_ends_the_answer_by_length() -> None:
    engine = MockEngine("mock", pieces=["a", "b"], inter_token_s=60)
    for n in (1, 2):
        answer = await chat(make_app(engine), timeout=0.05, n=n)
        ends = [
            (one["message"]["content"], one["finish_reason"]) for one in answer.json()["choices"]
        ]
        assert ends == [("a", "length")] * n
    *chunks, _ = events((await chat(make_app(engine), timeout=0.05, stream=True)).text)
    assert chunks[-1]["choices"][0]["finish_reason"] == "length"


async def test_a_prompt_that_waits_for_the_others_loses_its_time() -> None:
    engine = MockEngine("mock", pieces=["a"] * 3, inter_token_s=0.04)
    answer = await complete(make_app(engine), prompt=["x"] * 65, timeout=0.1)
    assert answer.status_code == 504
    assert len(engine.requests) < 65
    assert engine.live == 0


async def test_the_wait_for_room_is_no_longer_than_the_timeout() -> None:
    class Narrow(MockEngine):
        async def generate(self, request: GenerateRequest) -> AsyncGenerator[Event, None]:
            if request.id == "1":
                raise Busy("later", 3600)
            async for event in super().generate(request):
                yield event

    requests = [replace(one, timeout_s=0.05) for one in asked(2)]
    with pytest.raises(TimedOut):
        async with aclosing(generate(Narrow("mock"), requests, 3600)) as numbered:
            assert {position async for position, _ in numbered} == {0}


async def test_more_prompts_than_an_engine_has_room_for_go_in_turns() -> None:
    engine = MockEngine("mock", max_running=3, first_token_s=0.002, retry_after=0.01)
    answer = await complete(make_app(engine), prompt=["a"] * 20, max_tokens=2)
    assert answer.status_code == 200
    assert len(answer.json()["choices"]) == 20
    assert engine.live == 0


async def test_an_engine_that_lets_none_of_them_in_is_busy() -> None:
    engine = MockEngine("mock", failure="busy")
    answer = await complete(make_app(engine), prompt=["a"] * 20)
    assert answer.status_code == 503
    assert "retry-after" in answer.headers


async def test_what_has_begun_waits_for_others_to_make_room() -> None:
    engine = MockEngine("mock", max_running=1, inter_token_s=0.005, retry_after=0.005)
    app = make_app(engine)
    many = asyncio.create_task(complete(app, prompt=["a"] * 3, max_tokens=3))
    await eventually(lambda: engine.live)
    others = [await complete(app, prompt="b", max_tokens=9) for _ in range(5)]
    assert {answer.status_code for answer in others} <= {200, 503}
    assert (await many).status_code == 200
