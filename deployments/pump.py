"""Reads a replica's answer as fast as it comes: a slow reader finds all that is ready at once.

An answer comes by its own stream, or by a line that all answers of that replica share. Then its
stream stays silent up to the end, where it tells how much the line was given.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import replace
from typing import Any, TypeVar

from deployments.calls import ReplicaLost, Stream, next_of
from deployments.lines.inlet import LATE_S, Box, Inlet
from deployments.lines.outlet import Address, Reader
from deployments.wire import Item, Packed, unpack
from models.errors import EngineError
from models.request import GenerateRequest
from models.time_left import TimeLeft
from models.tokens import TokenRequest, Tokens, one_of_each_choice

logger = logging.getLogger("stepserve")

Asked = TypeVar("Asked", TokenRequest, GenerateRequest)
Call = Callable[[Asked, Reader], Any]  # to a replica; returns a handle's stream


async def started(
    call: Call[Asked], request: Asked, inlet: Inlet, left: TimeLeft
) -> tuple[Pump, Asked]:
    """A pump that has its first items, and the request whose they are. Raises ``TimedOut``.

    A replica that is lost before them is replaced once. The request has another id then: its first
    attempt may go on for a while, and where only a connection was lost, on the same replica. Each
    is told what is left of the time then, in the place of the request's ``timeout_s``.
    """
    async with left.bounds():
        try:
            return await _started(call, request, inlet, left), request
        except ReplicaLost:
            logger.warning("a replica was lost before its first token: asking another")
            again = replace(request, id=f"{request.id}-again")
            return await _started(call, again, inlet, left), again


async def _started(call: Call[Asked], request: Asked, inlet: Inlet, left: TimeLeft) -> Pump:
    box = inlet.box()
    pump = Pump(call(replace(request, timeout_s=left.seconds()), box.reader), box, inlet)
    try:
        await pump.begin()
    except BaseException:
        pump.stop_reading().cancel()
        raise
    return pump


class Pump:
    """Owns the stream and the box from here on."""

    def __init__(self, stream: Stream, box: Box, inlet: Inlet) -> None:
        self._stream = stream
        self._box = box
        self._inlet = inlet
        self._ready: list[Packed] = []
        self._wake = asyncio.Event()
        self._lost = False
        self.given_up = False
        box.open(self)
        self._task = asyncio.create_task(self._run())
        self._task.add_done_callback(self._ended)

    async def begin(self) -> None:
        """Waits for the first items; raises what ended the answer before them."""
        while not (self._ready or self._over()):
            await self._more()

    async def next(self) -> list[Item]:
        """All items that are ready, none at the end; raises ``EngineError`` if they end in one."""
        while not self._ready:
            if self._over():
                return []
            await self._more()
        ready, self._ready = self._ready, []
        items: list[Item] = []
        for packed in ready:
            try:
                items.append(unpack(packed))
            except EngineError:
                if not items:
                    raise
                self._ready = [packed]  # the last: raised once what came before it was read
        return merged(items)

    def stop_reading(self) -> Stream:
        """Gives the stream back, for its producer to be ended."""
        self._task.cancel()
        self._box.close()
        return self._stream

    def give_up(self) -> None:
        """Waits for nothing more, unless all is there: ``next`` brings what came, then the end."""
        if not self._task.done():
            self.given_up = True
            self.stop_reading()

    def take(self, payload: Packed) -> None:
        """One more item, which came by the line."""
        self._ready.append(payload)
        self._wake.set()

    def lose(self) -> None:
        """The line ended before the answer did."""
        self._lost = True
        self._task.cancel()
        self._wake.set()

    def _over(self) -> bool:
        """Whether nothing more comes; raises why, if it is not the end."""
        if self._lost:
            raise ReplicaLost
        if self.given_up:
            return True
        if self._task.done():
            self._task.result()
        return self._task.done()

    async def _more(self) -> None:
        self._wake.clear()
        await self._wake.wait()

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._box.close()
        if not task.cancelled():
            task.exception()  # looked at here, for the case that nobody reads on
        self._wake.set()

    async def _run(self) -> None:
        while ready := await next_of(self._stream):
            for packed in ready:
                await self._read(packed)

    async def _read(self, packed: Packed) -> None:
        match packed:
            case ("outlet", *address):
                self._inlet.connect(Address(*address))
            case ("sent", count):
                await self._all_taken(count)
            case _:
                self._ready.append(packed)
                self._wake.set()

    async def _all_taken(self, count: int) -> None:
        try:
            async with asyncio.timeout(LATE_S):
                while self._box.taken < count:
                    await self._more()
        except TimeoutError:
            raise ReplicaLost from None
        self._box.close()  # the line has done its part


def merged(items: list[Item]) -> list[Item]:
    """The same items, all tokens of a choice in one."""
    if len(items) == 1:
        return items
    others = [item for item in items if not isinstance(item, Tokens)]
    return [*others, *one_of_each_choice(item for item in items if isinstance(item, Tokens))]
