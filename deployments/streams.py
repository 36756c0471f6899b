"""The events of one HTTP request's generations as one stream, under a deadline."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import replace

from deployments.openai.errors import timed_out
from deployments.silence import Silence
from models.engine import LlmEngine
from models.errors import Busy, Failed
from models.events import Event
from models.request import GenerateRequest
from models.time_left import TimeLeft

CHOICES_AT_ONCE = 32  # of one HTTP request, so that its own size never makes an engine busy

Numbered = tuple[int, Event]  # the position of its request, and the event


async def generate(
    engine: LlmEngine, requests: Sequence[GenerateRequest], timeout_s: float
) -> AsyncGenerator[Numbered, None]:
    """Closing this closes all; raises ``EngineError``, or ``ApiError`` after a silent timeout."""
    bound = _Bound(timeout_s)
    silence = bound.silence
    try:
        if len(requests) == 1:
            async with aclosing(engine.generate(requests[0])) as events:
                async for event in events:
                    silence.end()
                    yield 0, event
                    silence.begin()
        else:
            async with aclosing(_many(engine, requests)) as numbered:
                async for item in numbered:
                    silence.end()
                    yield item
                    silence.begin()
    except asyncio.CancelledError:
        bound.explain()
        raise
    finally:
        silence.close()


class _Bound:
    """Ends each wait of this task that takes too long. The first wait begins with it."""

    def __init__(self, timeout_s: float) -> None:
        task = asyncio.current_task()
        assert task is not None
        self.silence = Silence(timeout_s, self._expire)
        self._timeout_s = timeout_s
        self._task = task
        self._expired = False

    def explain(self) -> None:
        """Raises what a cancellation is, if it is not the task's own."""
        if self._expired and not self._task.uncancel():
            raise timed_out(self._timeout_s) from None
        if not self._task.cancelling():
            raise Failed("The engine gave this request up.") from None

    def _expire(self) -> None:
        self.silence.close()
        self._expired = True
        self._task.cancel()


async def _many(
    engine: LlmEngine, requests: Sequence[GenerateRequest]
) -> AsyncGenerator[Numbered, None]:
    ready: asyncio.Queue[Numbered | asyncio.Task[None]] = asyncio.Queue()
    turns = _Turns(min(len(requests), max(1, CHOICES_AT_ONCE // requests[0].n)))
    left = TimeLeft(requests[0].timeout_s)

    async def attempt(position: int, request: GenerateRequest) -> None:
        rest = replace(request, timeout_s=left.seconds())
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
                async with left.bounds():
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
