"""The door of an Ingress: open until the server is told to stop, then for those inside alone.

Who is inside may be sent out by an operator.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from starlette.types import ASGIApp, Receive, Scope, Send

from deployments.access import QUIET, Access, access_of, tell_late
from deployments.dialects import error_response
from deployments.openai.errors import ApiError, unavailable

STOPPING = "The server is stopping. Please try again."
ABORT = "/abort_requests"
ABORTED = ApiError(409, "The request was aborted by the server's operator.", code="request_aborted")


@dataclass(eq=False, slots=True)
class Visit:
    """A request that is being answered, by its task."""

    access: Access
    task: asyncio.Task[object]
    aborted: bool = False

    def abort(self) -> None:
        self.aborted = True
        self.task.cancel()

    @property
    def sent_out(self) -> bool:
        """Whether its cancellation was an operator's alone, which then is over."""
        return self.aborted and not self.task.uncancel()


class Door:
    """Knows who is inside. Once closed, it stays so."""

    def __init__(self) -> None:
        self.closed = False
        self._inside: set[Visit] = set()
        self._empty = asyncio.Event()

    @contextmanager
    def visit(self, access: Access) -> Iterator[Visit]:
        task = asyncio.current_task()
        assert task is not None
        visit = Visit(access, task)
        self._inside.add(visit)
        try:
            yield visit
        finally:
            self._inside.discard(visit)
            self._tell()

    def abort(self, ids: frozenset[str]) -> int:
        """Ends the requests of these ids that are inside; how many there were."""
        visits = [one for one in self._inside if ids & one.access.ids and not one.aborted]
        for visit in visits:
            visit.abort()
        return len(visits)

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
        if scope["type"] != "http" or scope["path"] in (*QUIET, ABORT):
            await self._app(scope, receive, send)
        elif self._door.closed:
            await _refuse(scope, receive, send)
        else:
            await self._let_in(scope, receive, send)

    async def _let_in(self, scope: Scope, receive: Receive, send: Send) -> None:
        with self._door.visit(access_of(scope)) as visit:
            try:
                await self._app(scope, receive, send)
            except asyncio.CancelledError:
                if not visit.sent_out:
                    raise
                await tell_late(ABORTED, scope, receive, send)


async def _refuse(scope: Scope, receive: Receive, send: Send) -> None:
    access = access_of(scope)
    error = unavailable(STOPPING)
    access.fail(error)
    await error_response(scope, error, access.request_id)(scope, receive, send)
