"""The kept answers, whatever becomes of their store."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from deployments.openai.errors import server_error
from deployments.responses.record import Record
from deployments.responses.request import ResponseCall
from deployments.responses.response import ResponseTranscript
from deployments.responses.store import ResponseStore
from models.errors import EngineError

logger = logging.getLogger("stepserve")

STORE_TIMEOUT_S = 10.0


class Kept:
    """Without a store, or with one that fails, there are none."""

    def __init__(self, store: ResponseStore | None) -> None:
        self._store = store

    @property
    def open(self) -> bool:
        """Whether answers are kept at all."""
        return self._store is not None

    async def find(self, id: str) -> Record | None:
        """Raises ``ApiError`` if the store does not answer."""
        if self._store is None:
            return None
        async with _answering():
            data = await self._store.get(id)
        return None if data is None else Record.load(data)

    async def delete(self, id: str) -> bool:
        """Whether it was there. Raises ``ApiError`` if the store does not answer."""
        if self._store is None:
            return False
        async with _answering():
            return await self._store.delete(id)

    async def keep(self, call: ResponseCall, transcript: ResponseTranscript) -> None:
        """An answer that cannot be kept says so, and is given all the same."""
        if self._store is None or not transcript.kept:
            return
        record = Record(transcript.whole(), call.items, call.history).dump()
        try:
            async with asyncio.timeout(STORE_TIMEOUT_S):
                transcript.kept = await self._store.put(transcript.id, record)
        except (EngineError, TimeoutError) as error:
            logger.warning("a response could not be kept: %r", error)
            transcript.kept = False


@asynccontextmanager
async def _answering() -> AsyncGenerator[None, None]:
    try:
        async with asyncio.timeout(STORE_TIMEOUT_S):
            yield
    except (EngineError, TimeoutError):
        raise server_error(503, "The kept responses are not available now.") from None
