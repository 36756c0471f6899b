from __future__ import annotations

import asyncio

from configs.settings import ModelSettings
from deployments.tokenizer import ON_THE_LOOP, Tokenizer
from models.errors import Invalid, TooLong
from models.request import ChatPrompt, GenerateRequest, Prompt, TextPrompt, TokenPrompt
from models.text.encoded import Encoded


async def tokenizer() -> Tokenizer:
    settings = ModelSettings(name="bytes", factory="any:thing", tokenizer="bytes")
    made = Tokenizer.__new__(Tokenizer)
    await made.__init__(settings)  # type: ignore[misc]
    return made


def request(prompt: Prompt) -> GenerateRequest:
    return GenerateRequest(id="r", prompt=prompt, stop=("\n",))


async def test_a_request_becomes_token_ids_and_stops() -> None:
    encoded = await (await tokenizer()).encode(request(TextPrompt("hé")), 100)
    assert isinstance(encoded, Encoded)
    assert bytes(encoded.token_ids).decode() == "hé"
    assert encoded.stop_ids[ord("\n")] == "\n"


async def test_failures_are_values() -> None:
    made = await tokenizer()
    assert isinstance(await made.encode(request(TokenPrompt((10**6,))), 100), Invalid)
    long = await made.encode(request(TextPrompt("x" * 100)), 100)
    assert isinstance(long, TooLong)
    assert (long.prompt_tokens, long.max_context) == (100, 100)


async def test_a_long_prompt_leaves_the_event_loop_free() -> None:
    made = await tokenizer()
    message = {"role": "user", "content": "x" * 50 * ON_THE_LOOP}
    encoding = asyncio.create_task(made.encode(request(ChatPrompt((message,))), 10**6))
    turns = 0
    while not encoding.done():
        await asyncio.sleep(0)
        turns += 1
    assert turns > 5
    assert isinstance(await encoding, Encoded)
