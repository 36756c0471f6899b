"""A replica's end of its lines: one connection a reader, one write for all that a turn brought.

The stream that Serve knows stays open beside, for routing, limits, cancellation and the end; only
what is small and frequent goes round it. Knows nothing of what it carries.
"""

from __future__ import annotations

import asyncio
import hmac
import os
import pickle
import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple, cast

ID_BYTES = 16
HANDSHAKE_S = 5.0
MAX_STRANGERS = 256  # connections in their handshake; one more is closed at once
MAX_UNSENT = 64 * 1024 * 1024  # bytes, then a reader counts as lost; no frame is longer
LENGTH_BYTES = 4


class Address(NamedTuple):
    """Where an outlet listens. Each side shows the other its half of the key."""

    host: str
    port: int
    key: bytes


class Reader(NamedTuple):
    """Who waits for something: an inlet, and the number of one of its boxes."""

    inlet: bytes
    number: int


class LineLost(OSError):
    """The reader's connection ended; what was sent last may not have arrived."""


class Outlet:
    """The lines to all readers, on one event loop. ``address`` is None until it is open."""

    def __init__(self) -> None:
        self.address: Address | None = None
        self.lines: dict[bytes, Line] = {}
        self._strangers: set[Line] = set()
        self._server: asyncio.Server | None = None

    async def open(self, host: str) -> None:
        """Listens; does nothing where Ray was told to encrypt, as this does not."""
        if os.environ.get("RAY_USE_TLS", "0") not in ("0", ""):
            return
        key = secrets.token_bytes(2 * ID_BYTES)
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(
            lambda: Line(self.lines, self._strangers, key), host, 0
        )
        self.address = Address(host, self._server.sockets[0].getsockname()[1], key)

    def line_to(self, reader: Reader | None) -> Line | None:
        """The line of a reader that has connected, else None."""
        return self.lines.get(reader.inlet) if reader else None

    def close(self) -> None:
        """Ends all lines."""
        if self._server is not None:
            self._server.close()
        for line in list(self.lines.values()):
            line.end()


class Line(asyncio.Protocol):
    """The connection to one reader: items ``(number, payload)``, in the order they were put."""

    def __init__(self, lines: dict[bytes, Line], strangers: set[Line], key: bytes) -> None:
        self._lines = lines
        self._strangers = strangers
        self._key = key
        self._hello = b""
        self._inlet: bytes | None = None
        self._unsent: list[tuple[int, Any]] = []
        self._users: dict[int, Callable[[], object]] = {}
        self._ended = False

    @contextmanager
    def sender(self, number: int, on_loss: Callable[[], object]) -> Iterator[Sender]:
        """Puts payloads into one box; ``on_loss`` is called once if the line ends meanwhile."""
        self._users[number] = on_loss
        try:
            yield Sender(self, number)
        finally:
            self._users.pop(number, None)

    def put(self, number: int, payload: Any) -> None:
        """Goes out with all else of this turn of the loop. Raises ``LineLost``."""
        if self._ended:
            raise LineLost("the reader is gone")
        if not self._unsent:
            self._loop.call_soon(self._flush)
        self._unsent.append((number, payload))

    def end(self) -> None:
        self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._loop = asyncio.get_running_loop()
        self._transport = cast(asyncio.Transport, transport)
        self._timer = self._loop.call_later(HANDSHAKE_S, self.end)
        self._strangers.add(self)
        if len(self._strangers) > MAX_STRANGERS:
            self.end()

    def data_received(self, data: bytes) -> None:
        """All that a reader ever says is the first half of the key, and who it is."""
        self._hello += data
        if self._inlet is not None or len(self._hello) > 2 * ID_BYTES:
            self.end()
        elif len(self._hello) == 2 * ID_BYTES:
            self._welcome(self._hello[:ID_BYTES], self._hello[ID_BYTES:])

    def connection_lost(self, error: Exception | None) -> None:
        self._timer.cancel()
        self._strangers.discard(self)
        self._ended = True
        if self._inlet is not None and self._lines.get(self._inlet) is self:
            del self._lines[self._inlet]
        for on_loss in list(self._users.values()):
            on_loss()

    def _welcome(self, key: bytes, inlet: bytes) -> None:
        if not hmac.compare_digest(key, self._key[:ID_BYTES]):
            self.end()
            return
        self._timer.cancel()
        self._strangers.discard(self)
        self._inlet = inlet
        self._lines[inlet] = self
        self._transport.write(self._key[ID_BYTES:])

    def _flush(self) -> None:
        unsent, self._unsent = self._unsent, []
        if self._ended:
            return
        data = pickle.dumps(unsent, pickle.HIGHEST_PROTOCOL)
        if self._transport.get_write_buffer_size() + len(data) > MAX_UNSENT:
            self.end()
            return
        self._transport.write(len(data).to_bytes(LENGTH_BYTES, "big") + data)


class Sender:
    """Fills one box, and counts what it put there."""

    def __init__(self, line: Line, number: int) -> None:
        self.sent = 0
        self._line = line
        self._number = number

    def put(self, payload: Any) -> None:
        """Raises ``LineLost``."""
        self._line.put(self._number, payload)
        self.sent += 1
