"""The Tokenizer deployment: requests to token ids, on CPUs, without torch."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from configs.settings import ModelSettings
from models.build import build_text
from models.embedding import EmbedRequest, TokenInputs
from models.errors import EngineError, TooLong
from models.request import ChatPrompt, GenerateRequest, TextPrompt, TokenPrompt
from models.text.inputs import encode_inputs
from models.text.pipeline import Encoded

MESSAGE = 64  # characters that a message is worth, beside its own
SHORT_PROMPT = 4000  # characters; longer ones are encoded off the event loop
THREADS = 4


class Tokenizer:
    """Encodes for one model. Knows nothing of engines but the longest prompt they take."""

    async def __init__(self, settings: ModelSettings) -> None:  # type: ignore[misc]
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="encode")
        self._text = await asyncio.to_thread(build_text, settings)

    async def encode(self, request: GenerateRequest, max_context: int) -> Encoded | EngineError:
        """A failure is returned, never raised. A prompt beyond ``max_context`` goes no further."""
        try:
            encoded = await self._encode(request)
        except EngineError as error:
            return error
        if len(encoded.token_ids) >= max_context:
            return TooLong(len(encoded.token_ids), max_context)
        return encoded

    async def encode_inputs(
        self, request: EmbedRequest, max_context: int
    ) -> TokenInputs | EngineError:
        """The same for an embedding model, of which no input may exceed ``max_context``."""
        loop = asyncio.get_running_loop()
        work = partial(encode_inputs, self._text, request, max_context)
        try:
            if sum(map(_length, request.inputs)) <= SHORT_PROMPT:
                return work()
            return await loop.run_in_executor(self._threads, work)
        except EngineError as error:
            return error

    async def _encode(self, request: GenerateRequest) -> Encoded:
        if _characters(request) <= SHORT_PROMPT:
            return self._text.encode(request)
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._threads, self._text.encode, request)


def _length(prompt: TextPrompt | TokenPrompt) -> int:
    return len(prompt.text if isinstance(prompt, TextPrompt) else prompt.token_ids)


def _characters(request: GenerateRequest) -> int:
    """About what a request takes to encode; a message costs something even when it is empty."""
    stops = sum(map(len, request.stop))
    match request.prompt:
        case ChatPrompt(messages):
            return stops + sum(MESSAGE + len(str(message)) for message in messages)
        case TextPrompt(text):
            return stops + len(text)
        case _:
            return stops
