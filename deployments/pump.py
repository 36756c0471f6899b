"""Reads a replica's stream as fast as it comes: a slow reader finds all that is ready at once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence

from deployments.calls import Stream, next_of
from deployments.wire import Item, Packed, unpack
from models.errors import EngineError
from models.token_engine import Tokens


class Pump:
    """Owns the stream from here on. ``first`` are the items that were read already."""

    def __init__(self, stream: Stream, first: Sequence[Packed]) -> None:
        self._stream = stream
        self._ready = list(first)
        self._wake = asyncio.Event()
        self._task = asyncio.create_task(self._run())
        self._task.add_done_callback(self._ended)

    async def batches(self) -> AsyncGenerator[list[Item], None]:
        """All items that are ready, each time; raises ``EngineError`` when they end in one."""
        while True:
            if self._ready:
                ready, self._ready = self._ready, []
                items, error = _unpacked(ready)
                if items:
                    yield merged(items)
                if error is not None:
                    raise error
            elif self._task.done():
                self._task.result()
                return
            else:
                self._wake.clear()
                await self._wake.wait()

    def stop_reading(self) -> Stream:
        """Gives the stream back, for its producer to be ended."""
        self._task.cancel()
        return self._stream

    def _ended(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled():
            task.exception()  # looked at here, for the case that nobody reads on
        self._wake.set()

    async def _run(self) -> None:
        while ready := await next_of(self._stream):
            self._ready += ready
            self._wake.set()


def _unpacked(ready: Sequence[Packed]) -> tuple[list[Item], EngineError | None]:
    """The items up to an error, and the error: it ends the stream."""
    items: list[Item] = []
    for packed in ready:
        try:
            items.append(unpack(packed))
        except EngineError as error:
            return items, error
    return items, None


def merged(items: Sequence[Item]) -> list[Item]:
    """The same items, all tokens of a choice in one."""
    tokens: dict[int, Tokens] = {}
    others: list[Item] = []
    for item in items:
        if not isinstance(item, Tokens):
            others.append(item)
        elif (earlier := tokens.get(item.choice)) is None:
            tokens[item.choice] = item
        else:
            tokens[item.choice] = item.after(earlier)
    return [*others, *tokens.values()]
