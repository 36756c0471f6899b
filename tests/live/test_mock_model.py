"""The official client against ``serve run`` on the scripted model."""

from __future__ import annotations

import asyncio

import openai
import pytest
from openai.types.chat import ChatCompletionMessageParam

from tests.serving import Server

pytestmark = pytest.mark.slow

SCRIPT = "The quick brown fox jumps over the lazy dog."
MESSAGES: list[ChatCompletionMessageParam] = [{"role": "user", "content": "Say it."}]


def test_sync(mock_server: Server) -> None:
    with openai.OpenAI(base_url=f"{mock_server.url}/v1", api_key="none") as client:
        answer = client.chat.completions.create(model="mock", messages=MESSAGES)
        assert answer.choices[0].message.content == SCRIPT
        chunks = client.chat.completions.create(model="mock", messages=MESSAGES, stream=True)
        assert "".join(c.choices[0].delta.content or "" for c in chunks) == SCRIPT


async def test_many_streams_at_once(mock_server: Server) -> None:
    async with openai.AsyncOpenAI(
        base_url=f"{mock_server.url}/v1", api_key="none", timeout=120
    ) as client:

        async def one() -> str:
            stream = await client.chat.completions.create(
                model="mock", messages=MESSAGES, stream=True
            )
            return "".join([c.choices[0].delta.content or "" async for c in stream])

        assert set(await asyncio.gather(*(one() for _ in range(64)))) == {SCRIPT}
