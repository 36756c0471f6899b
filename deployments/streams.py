"""The events of one HTTP request's generations as one stream, under a deadline."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing

from deployments.openai.errors import timed_out
from models.engine import LlmEngine
from models.errors import Failed
from models.events import Event
from models.request import GenerateRequest

CHOICES_AT_ONCE = 32  # of one HTTP request, so that its own size never makes an engine busy

Numbered = tuple[int, Event]  # the position of its request, and the event


async def generate(
    engine: LlmEngine, requests: Sequence[GenerateRequest], timeout_s: float
) -> AsyncGenerator[Numbered, None]:
    """Closing this closes all; raises ``EngineError``, or ``ApiError`` after a silent timeout."""
    source = _one(engine, requests[0]) if len(requests) == 1 else _many(engine, requests)
    async with aclosing(source):
        while (item := await _next(source, timeout_s)) is not None:
            yield item


async def _next(source: AsyncGenerator[Numbered, None], timeout_s: float) -> Numbered | None:
    try:
        async with asyncio.timeout(timeout_s):
            return await anext(source, None)
    except TimeoutError:
        raise timed_out(timeout_s) from None
    except asyncio.CancelledError:
        _check_own_cancellation()
        raise


def _check_own_cancellation() -> None:
    task = asyncio.current_task()
    if task is not None and not task.cancelling():
        raise Failed("The engine gave this request up.") from None


async def _one(engine: LlmEngine, request: GenerateRequest) -> AsyncGenerator[Numbered, None]:
    async with aclosing(engine.generate(request)) as events:
        async for event in events:
            yield 0, event


async def _many(
    engine: LlmEngine, requests: Sequence[GenerateRequest]
) -> AsyncGenerator[Numbered, None]:
    ready: asyncio.Queue[Numbered | asyncio.Task[None]] = asyncio.Queue()
    turns = asyncio.Semaphore(max(1, CHOICES_AT_ONCE // requests[0].n))
    began = time.monotonic()

    async def pump(position: int, request: GenerateRequest) -> None:
        async with turns:
            request = request.after(time.monotonic() - began)
            async with aclosing(engine.generate(request)) as events:
                async for event in events:
                    ready.put_nowait((position, event))

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
