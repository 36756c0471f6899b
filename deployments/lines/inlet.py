"""A reader's end of its lines: connects to outlets, and sorts what comes into boxes."""

from __future__ import annotations

import asyncio
import hmac
import logging
import pickle
import secrets
import socket
from itertools import count
from typing import Any, Protocol, cast

from deployments.lines.outlet import ID_BYTES, LENGTH_BYTES, MAX_UNSENT, Address, Reader

logger = logging.getLogger("stepserve")

CONNECT_S = 5.0
RETRY_S = 30.0  # after an outlet could not be reached
LATE_S = 10.0  # between the end of an answer and the last that its line was given
SILENCE_S = 30  # of a connection, before the system probes whether it still is one


class Taker(Protocol):
    """Who waits for what comes into a box."""

    def take(self, payload: Any) -> None: ...

    def lose(self) -> None:
        """The line ended, after it had brought something."""
        ...


class Box:
    """What is on its way to one taker. ``reader`` is what its sender must be told."""

    def __init__(self, reader: Reader, boxes: dict[int, Box]) -> None:
        self.reader = reader
        self.taken = 0
        self.line: object | None = None  # the first that brought something
        self._boxes = boxes
        self._taker: Taker | None = None

    def open(self, taker: Taker) -> None:
        self._taker = taker
        self._boxes[self.reader.number] = self

    def close(self) -> None:
        """What still comes is dropped."""
        self._boxes.pop(self.reader.number, None)

    def take(self, line: object, payload: Any) -> None:
        assert self._taker is not None
        self.line = line
        self.taken += 1
        self._taker.take(payload)

    def lose(self) -> None:
        assert self._taker is not None
        self.close()
        self._taker.lose()


class Inlet:
    """One reader of any number of outlets, on one event loop."""

    def __init__(self) -> None:
        self.id = secrets.token_bytes(ID_BYTES)
        self._numbers = count(1)
        self._boxes: dict[int, Box] = {}
        self._known: dict[Address, asyncio.Task[None]] = {}

    def box(self) -> Box:
        return Box(Reader(self.id, next(self._numbers)), self._boxes)

    def connect(self, address: Address) -> None:
        """Makes sure that an outlet has a line to here, now or soon; it knows when."""
        if address not in self._known:
            self._known[address] = asyncio.create_task(self._connect(address))

    def close(self) -> None:
        """Ends all lines."""
        for task in self._known.values():
            task.cancel()

    async def _connect(self, address: Address) -> None:
        loop = asyncio.get_running_loop()
        transport: asyncio.BaseTransport | None = None
        try:
            async with asyncio.timeout(CONNECT_S):
                transport, line = await loop.create_connection(
                    lambda: _Line(address.key, self), address.host, address.port
                )
            await line.ended
        except (OSError, TimeoutError) as error:
            logger.warning("no line to %s:%d: %s", address.host, address.port, error)
            await asyncio.sleep(RETRY_S)
        finally:
            self._known.pop(address, None)
            if transport is not None:
                transport.close()

    def sort(self, line: object, items: list[tuple[int, Any]]) -> None:
        for number, payload in items:
            box = self._boxes.get(number)
            if box is not None:
                box.take(line, payload)

    def lose(self, line: object) -> None:
        for box in [box for box in self._boxes.values() if box.line is line]:
            box.lose()


class _Line(asyncio.Protocol):
    """Unpickles only what comes from whoever knows the second half of the key.

    That is a replica, whose pickles Serve's own streams bring here as well.
    """

    def __init__(self, key: bytes, inlet: Inlet) -> None:
        self.ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._key = key
        self._inlet = inlet
        self._data = bytearray()
        self._welcome = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        _probe_when_silent(transport.get_extra_info("socket"))
        self._transport.write(self._key[:ID_BYTES] + self._inlet.id)

    def data_received(self, data: bytes) -> None:
        self._data += data
        if self._welcome or self._is_welcome():
            while (frame := self._frame()) is not None:
                self._inlet.sort(self, pickle.loads(frame))

    def connection_lost(self, error: Exception | None) -> None:
        if not self.ended.done():
            self.ended.set_result(None)
        self._inlet.lose(self)

    def _is_welcome(self) -> bool:
        if len(self._data) < ID_BYTES:
            return False
        self._welcome = hmac.compare_digest(self._data[:ID_BYTES], self._key[ID_BYTES:])
        del self._data[:ID_BYTES]
        if not self._welcome:
            self._transport.abort()
        return self._welcome

    def _frame(self) -> bytes | None:
        length = int.from_bytes(self._data[:LENGTH_BYTES], "big")
        if len(self._data) >= LENGTH_BYTES and length > MAX_UNSENT:
            self._transport.abort()  # no outlet of ours
            return None
        end = LENGTH_BYTES + length
        if len(self._data) < max(end, LENGTH_BYTES + 1):
            return None
        frame = bytes(self._data[LENGTH_BYTES:end])
        del self._data[:end]
        return frame


def _probe_when_silent(connection: socket.socket) -> None:
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    if hasattr(socket, "TCP_KEEPIDLE"):
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, SILENCE_S)
