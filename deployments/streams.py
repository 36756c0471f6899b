"""The events of one HTTP request's generations as one stream, under a deadline."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Awaitable, Sequence
from contextlib import aclosing
from typing import TypeVar

from deployments.openai.errors import timed_out
from models.engine import LlmEngine
from models.errors import Busy, Failed
from models.events import Event
from models.request import GenerateRequest

CHOICES_AT_ONCE = 32  # of one HTTP request, so that its own size never makes an engine busy

T = TypeVar("T")
Numbered = tuple[int, Event]  # the position of its request, and the event


async def generate(
    engine: LlmEngine, requests: Sequence[GenerateRequest], timeout_s: float
) -> AsyncGenerator[Numbered, None]:
    """Closing this closes all; raises ``EngineError``, or ``ApiError`` after a silent timeout."""
    source = _one(engine, requests[0]) if len(requests) == 1 else _many(engine, requests)
    silence = _Silence(timeout_s)
    try:
        async with aclosing(source):
            while (item := await silence.bound(anext(source, None))) is not None:
                yield item
    finally:
        silence.end()


class _Silence:
    """Bounds each wait of one task by one timer, which is only looked at when it goes off."""

    def __init__(self, timeout_s: float) -> None:
        self._timeout_s = timeout_s
        self._loop = asyncio.get_running_loop()
        self._since: float | None = None  # on the loop's clock, while there is a wait
        self._task = asyncio.current_task()
        self._expired = False
        self._timer = self._loop.call_later(timeout_s, self._look)

    async def bound(self, wait: Awaitable[T]) -> T:
        """What it brings, or ``ApiError`` when it has taken too long."""
        self._since = self._loop.time()
        try:
            return await wait
        except asyncio.CancelledError:
            self._check_cancellation()
            raise
        finally:
            self._since = None

    def end(self) -> None:
        self._timer.cancel()

    def _look(self) -> None:
        now = self._loop.time()
        ends = (now if self._since is None else self._since) + self._timeout_s
        if ends > now:
            self._timer = self._loop.call_at(ends, self._look)
        elif self._task is not None:
            self._expired = True
            self._task.cancel()

    def _check_cancellation(self) -> None:
        """Raises what else it is than a cancellation of the task."""
        assert self._task is not None
        if self._expired and not self._task.uncancel():
            raise timed_out(self._timeout_s) from None
        if not self._task.cancelling():
            raise Failed("The engine gave this request up.") from None


async def _one(engine: LlmEngine, request: GenerateRequest) -> AsyncGenerator[Numbered, None]:
    async with aclosing(engine.generate(request)) as events:
        async for event in events:
            yield 0, event


async def _many(
    engine: LlmEngine, requests: Sequence[GenerateRequest]
) -> AsyncGenerator[Numbered, None]:
    ready: asyncio.Queue[Numbered | asyncio.Task[None]] = asyncio.Queue()
    turns = _Turns(min(len(requests), max(1, CHOICES_AT_ONCE // requests[0].n)))
    began = time.monotonic()

    async def attempt(position: int, request: GenerateRequest) -> None:
        rest = request.after(time.monotonic() - began)
        async with aclosing(engine.generate(rest)) as events:
            async for event in events:
                turns.begun = True
                ready.put_nowait((position, event))

    async def pump(position: int, request: GenerateRequest) -> None:
        while True:
            await turns.take()
            try:
                await attempt(position, request)
            except Busy as busy:
                await turns.wait(busy)
            else:
                return turns.give()

    pumps = [asyncio.create_task(pump(i, request)) for i, request in enumerate(requests)]
    for task in pumps:
        task.add_done_callback(ready.put_nowait)
    try:
        async for item in _drain(ready, len(pumps)):
            yield item
    finally:
        for task in pumps:
            task.cancel()
        await asyncio.gather(*pumps, return_exceptions=True)


class _Turns:
    """How many requests of one call run at once: fewer where an engine has no room for so many."""

    def __init__(self, most: int) -> None:
        self.begun = False  # whether any of them was let in
        self._most = most
        self._free = asyncio.Semaphore(most)

    async def take(self) -> None:
        await self._free.acquire()

    def give(self) -> None:
        self._free.release()

    async def wait(self, busy: Busy) -> None:
        """Gives a turn up, for good if others are left. Raises ``busy`` if none was ever let in."""
        if self._most > 1:
            self._most -= 1
        elif self.begun:
            self.give()
            await asyncio.sleep(busy.retry_after)
        else:
            raise busy


async def _drain(
    ready: asyncio.Queue[Numbered | asyncio.Task[None]], pumps: int
) -> AsyncGenerator[Numbered, None]:
    while pumps:
        item = await ready.get()
        if isinstance(item, tuple):
            yield item
        else:
            item.result()
            pumps -= 1
