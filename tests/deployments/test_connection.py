from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import AsyncGenerator
from contextlib import suppress

import httpx
import pytest

from models.events import Event
from models.mock import MockEngine
from models.request import GenerateRequest
from tests.deployments.serving import (
    CHAT,
    COMPLETIONS,
    HELLO,
    Exchange,
    eventually,
    listening,
    make_app,
)


def body(**extra: object) -> dict[str, object]:
    return {"model": "mock", "messages": HELLO, "ignore_eos": True, **extra}


@pytest.mark.parametrize("stream", [False, True])
async def test_leaving_before_the_first_token_frees_the_request(stream: bool) -> None:
    engine = MockEngine("mock", first_token_s=60)
    exchange = Exchange(make_app(engine), CHAT, body(stream=stream))
    await eventually(lambda: engine.live)
    await exchange.leave()
    assert engine.live == 0
    assert exchange.unread == 0


@pytest.mark.parametrize("n", [1, 3])
async def test_leaving_a_stream_frees_the_request(n: int) -> None:
    engine = MockEngine("mock", inter_token_s=0.001)
    exchange = Exchange(make_app(engine), CHAT, body(stream=True, n=n))
    for _ in range(10):
        await exchange.next()
    assert engine.live == 1
    await exchange.leave()
    assert engine.live == 0


async def test_leaving_a_whole_answer_frees_the_request() -> None:
    engine = MockEngine("mock", inter_token_s=0.001, max_context=10**6)
    exchange = Exchange(make_app(engine), CHAT, body())
    await eventually(lambda: engine.live)
    await asyncio.sleep(0.02)
    await exchange.leave()
    assert engine.live == 0


@pytest.mark.parametrize("stream", [False, True])
async def test_leaving_frees_all_prompts(stream: bool) -> None:
    engine = MockEngine("mock", inter_token_s=0.001)
    request = {"model": "mock", "prompt": ["a"] * 50, "ignore_eos": True, "stream": stream}
    exchange = Exchange(make_app(engine), COMPLETIONS, {**request, "max_tokens": 1000})
    await eventually(lambda: engine.live == 32)
    await exchange.leave()
    assert engine.live == 0


async def test_leaving_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "stepserve")
    engine = MockEngine("mock", first_token_s=60)
    exchange = Exchange(make_app(engine), CHAT, body())
    await eventually(lambda: engine.live)
    await exchange.leave()
    assert "status=499" in caplog.text
    assert "finish=cancelled" in caplog.text


async def test_a_server_that_cancels_frees_the_request() -> None:
    engine = MockEngine("mock", inter_token_s=0.001)
    exchange = Exchange(make_app(engine), CHAT, body(stream=True))
    await exchange.next()
    exchange.task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await exchange.task
    assert engine.live == 0


class Tidy(MockEngine):
    """Takes its time to clean up."""

    closed = False

    async def generate(self, request: GenerateRequest) -> AsyncGenerator[Event, None]:
        try:
            async for event in super().generate(request):
                yield event
        finally:
            await asyncio.sleep(0.02)
            self.closed = True


@pytest.mark.parametrize("prompt", ["a", ["a", "b"]])
@pytest.mark.parametrize("stuck", [False, True])
async def test_who_leaves_is_done_with_only_when_the_engine_is(
    prompt: str | list[str], stuck: bool
) -> None:
    engine = Tidy("mock", inter_token_s=0.001 if stuck else 60)
    request: dict[str, object] = {"model": "mock", "prompt": prompt, "stream": True}
    request |= {"ignore_eos": True, "max_tokens": 1000}
    exchange = Exchange(make_app(engine), COMPLETIONS, request, reads=2 if stuck else 100)
    for _ in range(2):
        await exchange.next()
    await asyncio.sleep(0.01)
    await exchange.leave()
    assert engine.closed


@pytest.mark.parametrize("path", [CHAT, COMPLETIONS])
async def test_each_event_is_a_write_of_its_own(path: str) -> None:
    prompt = {"messages": HELLO} if path == CHAT else {"prompt": "Hi"}
    engine = MockEngine("mock", pieces=["a", "b"])
    exchange = Exchange(make_app(engine), path, {"model": "mock", "stream": True, **prompt})
    await exchange.task
    assert (await exchange.next())["type"] == "http.response.start"
    *events, last = [(await exchange.next())["body"] for _ in range(exchange.unread)]
    assert last == b""
    assert len(events) == (5 if path == CHAT else 4)
    assert all(one.startswith(b"data: ") and one.endswith(b"\n\n") for one in events)
    assert all(one.count(b"\n\n") == 1 for one in events)


async def visit(http: httpx.AsyncClient, url: str, stay_s: float, number: int) -> None:
    """Asks, and goes away after a while unless the answer is there; every other one streams."""
    request = body(stream=bool(number % 2), max_tokens=60)
    with suppress(TimeoutError):
        async with asyncio.timeout(stay_s):
            await http.post(url + CHAT, json=request)


async def test_nothing_is_left_after_many_have_left_at_random() -> None:
    engine = MockEngine("mock", inter_token_s=0.0005, first_token_s=0.001)
    draw = random.Random(5)
    with listening(make_app(engine)) as url:
        async with httpx.AsyncClient(limits=httpx.Limits(max_connections=60)) as http:
            while len(engine.requests) <= 30:  # a busy machine lets few come so far in one go
                stays = [draw.uniform(0, 0.2) for _ in range(60)]
                await asyncio.gather(*(visit(http, url, stay, i) for i, stay in enumerate(stays)))
                await eventually(lambda: engine.live == 0)
            answer = await http.post(url + CHAT, json={"model": "mock", "messages": HELLO})
            assert answer.status_code == 200
