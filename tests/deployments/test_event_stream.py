from __future__ import annotations

import asyncio
from typing import Any

import openai
import pytest
from starlette.types import Message

from deployments.event_stream import EventStream
from models.mock import MockEngine
from tests.deployments.serving import CHAT, HELLO, Exchange, chat, events, listening, make_app, post

SIGN = ": alive\n\n"
ALIVE_S = 0.05
ASKED: dict[str, dict[str, Any]] = {
    CHAT: {"messages": HELLO},
    "/v1/completions": {"prompt": "Once upon"},
    "/v1/responses": {"input": "Hello there"},
    "/v1/messages": {"messages": HELLO, "max_tokens": 16},
}


@pytest.mark.parametrize("path", ASKED)
async def test_a_stream_shows_life_until_its_first_token(path: str) -> None:
    engine = MockEngine("mock", first_token_s=0.3)
    body = {"model": "mock", "stream": True, **ASKED[path]}
    late = await post(make_app(engine, keep_alive_s=ALIVE_S), path, body)
    soon = await post(make_app(MockEngine("mock")), path, body)
    assert late.status_code == 200
    assert late.text.startswith(2 * SIGN)
    assert SIGN not in soon.text
    assert late.text.replace(SIGN, "").count("\n\n") == soon.text.count("\n\n")


async def test_a_stream_shows_life_between_tokens() -> None:
    engine = MockEngine("mock", pieces=["a", "b"], inter_token_s=0.15)
    answer = await chat(make_app(engine, keep_alive_s=ALIVE_S), stream=True)
    assert "content" in answer.text.partition(SIGN)[0]
    assert events(answer.text.replace(SIGN, ""))[-1] == "[DONE]"


@pytest.mark.parametrize("settings", [{"keep_alive_s": None}, {}])
async def test_without_it_or_before_its_time_nothing_is_added(settings: dict[str, Any]) -> None:
    engine = MockEngine("mock", first_token_s=0.2)
    answer = await chat(make_app(engine, **settings), stream=True)
    assert ":" not in answer.text[:1]


async def test_what_fails_after_a_sign_of_life_is_told_in_the_stream() -> None:
    engine = MockEngine("mock", first_token_s=60)
    app = make_app(engine, keep_alive_s=ALIVE_S, request_timeout_s=0.3)
    answer = await chat(app, stream=True)
    assert answer.status_code == 200
    [error] = events(answer.text.replace(SIGN, ""))
    assert error["error"]["code"] == "timeout"


async def test_nothing_comes_after_the_end() -> None:
    engine = MockEngine("mock", first_token_s=0.1)
    body = {"model": "mock", "stream": True, "messages": HELLO}
    exchange = Exchange(make_app(engine, keep_alive_s=ALIVE_S), CHAT, body)
    message: Message = {}
    while message.get("more_body", True):
        message = await exchange.next()
    await asyncio.sleep(3 * ALIVE_S)
    assert not exchange.unread


async def test_a_client_who_does_not_read_is_not_sent_more_and_more_signs() -> None:
    sent: list[Message] = []

    async def send(message: Message) -> None:
        sent.append(message)
        if len(sent) > 1:  # all but the head
            await asyncio.Event().wait()

    with EventStream(send, ALIVE_S):
        await asyncio.sleep(6 * ALIVE_S)
    assert [message["type"] for message in sent] == ["http.response.start", "http.response.body"]


async def test_the_head_goes_out_once() -> None:
    sent: list[Message] = []

    async def send(message: Message) -> None:
        await asyncio.sleep(ALIVE_S)
        sent.append(message)

    with EventStream(send, ALIVE_S) as stream:
        await asyncio.sleep(1.5 * ALIVE_S)  # the sign has begun to go out
        await stream.carry(stream.write(b"data: a\n\n"), lambda error: b"")
    assert [message["type"] for message in sent].count("http.response.start") == 1
    assert sent[0]["type"] == "http.response.start"
    assert sent[-1] == {"type": "http.response.body", "body": b"", "more_body": False}


async def test_the_official_client_reads_over_signs_of_life() -> None:
    engine = MockEngine("mock", first_token_s=0.2, text="As said.")
    with listening(make_app(engine, keep_alive_s=ALIVE_S)) as url:
        client = openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0)
        stream = await client.completions.create(model="mock", prompt="a", stream=True)
        assert "".join([chunk.choices[0].text async for chunk in stream]) == "As said."
