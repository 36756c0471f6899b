"""The door of an Ingress: open until the server is told to stop, then for those inside alone."""

from __future__ import annotations

import asyncio

from starlette.types import ASGIApp, Receive, Scope, Send

from deployments.access import QUIET, access_of
from deployments.dialects import error_response
from deployments.openai.errors import unavailable

STOPPING = "The server is stopping. Please try again."


class Door:
    """Counts who is inside. Once closed, it stays so."""

    def __init__(self) -> None:
        self.closed = False
        self._inside = 0
        self._empty = asyncio.Event()

    def enter(self) -> None:
        self._inside += 1

    def leave(self) -> None:
        self._inside -= 1
        self._tell()

    async def close(self) -> None:
        """Returns when the last has left."""
        self.closed = True
        self._tell()
        await self._empty.wait()

    def _tell(self) -> None:
        if self.closed and not self._inside:
            self._empty.set()


class Entrance:
    """The layer at the door. What operators ask is answered until the end."""

    def __init__(self, app: ASGIApp, door: Door) -> None:
        self._app = app
        self._door = door

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"] in QUIET:
            await self._app(scope, receive, send)
        elif self._door.closed:
            await _refuse(scope, receive, send)
        else:
            self._door.enter()
            try:
                await self._app(scope, receive, send)
            finally:
                self._door.leave()


async def _refuse(scope: Scope, receive: Receive, send: Send) -> None:
    access = access_of(scope)
    error = unavailable(STOPPING)
    access.fail(error)
    await error_response(scope, error, access.request_id)(scope, receive, send)
