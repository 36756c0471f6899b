"""In Serve's HTTP proxy: bodies that come from the ingress by a line, not by a stream each.

Serve's own stream of the request still brings the head of the answer and its end. Serve loads
this where ``RAY_SERVE_HTTP_PROXY_CALLBACK_IMPORT_PATH`` names ``middlewares``; without it all
comes by that stream.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from starlette.middleware import Middleware
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from deployments.lines.inlet import LATE_S, Inlet
from deployments.lines.outlet import MAX_UNSENT, Address
from deployments.lines.reply import HEADER, OUTLET, SENT, written


def middlewares() -> list[Middleware]:
    """What Serve's proxy is to run around its own."""
    return [Middleware(FromIngress)]


class LineBroken(ConnectionError):
    """An answer is not whole: its line was lost, or brought far more than its client reads."""


class FromIngress:
    """ASGI middleware: tells the ingress who reads, and writes what it sends."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self._inlet = Inlet()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = [(name, value) for name, value in scope["headers"] if name != HEADER]
        if scope["method"] != "POST":
            await self._app({**scope, "headers": headers}, receive, send)
            return
        answer = _Answer(self._inlet, send)
        headers.append((HEADER, written(answer.box.reader)))
        await answer.run(self._app({**scope, "headers": headers}, receive, answer.send))


class _Answer:
    """One answer: its head and end come to ``send``, its body to ``take``.

    A slow client stops no line: what it has not read yet gathers here, up to ``MAX_UNSENT``.
    """

    def __init__(self, inlet: Inlet, send: Send) -> None:
        self.box = inlet.box()
        self.box.open(self)
        self._inlet = inlet
        self._send = send
        self._parts: list[bytes] = []
        self._unwritten = 0  # bytes in them
        self._written = 0
        self._changed = asyncio.Event()
        self._error: Exception | None = None
        self._task = asyncio.current_task()
        self._writer: asyncio.Task[None] | None = None

    async def run(self, work: Awaitable[None]) -> None:
        """Raises ``LineBroken`` or what writing raised: the server breaks the connection off."""
        try:
            await work
        except asyncio.CancelledError:
            if self._error is None or (self._task is not None and self._task.uncancel()):
                raise
        finally:
            self._task = None  # not to be cancelled any more
            self.box.close()
            if self._writer is not None:
                self._writer.cancel()
        if self._error is not None:
            raise self._error

    def take(self, part: bytes) -> None:
        self._parts.append(part)
        self._unwritten += len(part)
        if self._unwritten > MAX_UNSENT:
            self._fail(LineBroken("the client reads too slowly"))
        self._changed.set()

    def lose(self) -> None:
        self._fail(LineBroken("the line to the ingress was lost"))

    async def send(self, message: Message) -> None:
        """Takes what Serve's stream brings."""
        if self._error is not None:
            return
        address, sent = message.pop(OUTLET, None), message.pop(SENT, None)
        if address is not None:
            self._inlet.connect(Address(*address))
        if sent is not None:
            await self._all_written(sent)
        await self._send(message)
        if message["type"] == "http.response.start":
            self._writer = asyncio.create_task(self._write())

    def _fail(self, error: Exception) -> None:
        """Ends ``run``."""
        if self._task is not None and self._error is None:
            self._error = error
            self._task.cancel()

    async def _write(self) -> None:
        try:
            await self._write_parts()
        except Exception as error:  # whatever the server or a middleware of others may raise
            self._fail(error)

    async def _write_parts(self) -> None:
        while True:
            while not self._parts:
                await self._change()
            parts, self._parts, self._unwritten = self._parts, [], 0
            body = b"".join(parts)
            await self._send({"type": "http.response.body", "body": body, "more_body": True})
            self._written += len(parts)
            self._changed.set()

    async def _all_written(self, count: int) -> None:
        async with asyncio.timeout(LATE_S):
            await self._until(lambda: self.box.taken >= count)
        self.box.close()  # the line has done its part; what is left is up to the client
        await self._until(lambda: self._written >= count)

    async def _until(self, condition: Callable[[], bool]) -> None:
        while not condition():
            await self._change()

    async def _change(self) -> None:
        self._changed.clear()
        await self._changed.wait()
