"""The Tokenizer deployment: requests to token ids, on CPUs, without torch."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor

from configs.settings import ModelSettings
from models.build import build_text
from models.errors import EngineError, TooLong
from models.request import ChatPrompt, GenerateRequest, TextPrompt
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

    async def _encode(self, request: GenerateRequest) -> Encoded:
        if _characters(request) <= SHORT_PROMPT:
            return self._text.encode(request)
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._threads, self._text.encode, request)


def _characters(request: GenerateRequest) -> int:
    """About what a request takes to encode; a message costs something even when it is empty."""
    stops = sum(map(len, request.stop))
    match request.prompt:
        case ChatPrompt(messages, tools, documents):
            parts = (*messages, *tools, *documents)
            return stops + sum(MESSAGE + len(str(part)) for part in parts)
        case TextPrompt(text):
            return stops + len(text)
        case _:
            return stops
