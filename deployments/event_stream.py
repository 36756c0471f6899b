"""One answer as server-sent events, and the signs of life of one that has nothing to say yet."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from types import TracebackType

from starlette.requests import ClientDisconnect
from starlette.types import Send

from deployments.openai import sse
from deployments.openai.errors import ApiError
from deployments.silence import Silence
from models.errors import EngineError


class EventStream:
    """Its head goes out with its first bytes. Use it as a context manager, on one task.

    After ``alive_s`` of silence it writes a comment, which clients skip, so that no proxy takes the
    connection for dead; None: never.
    """

    def __init__(self, send: Send, alive_s: float | None) -> None:
        self._send = send
        self._alive_s = alive_s
        self._begun = False
        self._beginning = asyncio.Lock()  # held while the head goes out
        self._silence: Silence | None = None
        self._sign: asyncio.Task[None] | None = None

    def __enter__(self) -> EventStream:
        if self._alive_s is not None:
            self._silence = Silence(self._alive_s, self._show_life)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._stop_signs()

    async def carry(
        self, telling: Awaitable[None], failed: Callable[[ApiError | EngineError], bytes]
    ) -> None:
        """Awaits ``telling``, which writes the answer, and ends the stream.

        Raises what that raises before anything was written; later ``failed`` makes the last event.
        """
        try:
            await telling
        except (ApiError, EngineError) as error:
            if not self._begun:
                raise
            await self.write(failed(error))
        await self._end()

    async def write(self, data: bytes) -> None:
        """Whole events."""
        if self._silence is not None:
            self._silence.begin()
        if not self._begun or self._beginning.locked():
            await self._begin()
        await self._send({"type": "http.response.body", "body": data, "more_body": True})

    async def _end(self) -> None:
        self._stop_signs()
        if self._sign is not None:
            await asyncio.wait([self._sign])
        await self._send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _begin(self) -> None:
        async with self._beginning:
            if not self._begun:
                self._begun = True
                start = {"type": "http.response.start", "status": 200}
                await self._send({**start, "headers": list(sse.HEADERS)})

    def _stop_signs(self) -> None:
        if self._silence is not None:
            self._silence.close()
        if self._sign is not None:
            self._sign.cancel()

    def _show_life(self) -> None:
        if self._sign is None or self._sign.done():
            self._sign = asyncio.get_running_loop().create_task(self._write_sign())

    async def _write_sign(self) -> None:
        with suppress(ClientDisconnect):  # who writes the answer finds out as well
            await self.write(sse.COMMENT)
