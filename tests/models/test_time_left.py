from __future__ import annotations

import asyncio

import pytest

from models.errors import TimedOut
from models.time_left import TimeLeft


async def test_what_is_left_shrinks_down_to_an_error() -> None:
    left = TimeLeft(3600)
    first = left.seconds()
    await asyncio.sleep(0.001)
    second = left.seconds()
    assert first is not None
    assert second is not None
    assert 0 < second < first <= 3600
    over = TimeLeft(0.001)
    await asyncio.sleep(0.01)
    with pytest.raises(TimedOut):
        over.seconds()


async def test_without_a_limit_there_is_always_time() -> None:
    left = TimeLeft(None)
    async with left.bounds():
        await asyncio.sleep(0.001)
    assert left.seconds() is None
    left.when_over(pytest.fail)()


async def test_what_is_awaited_ends_with_the_time() -> None:
    never: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    left = TimeLeft(0.01)
    with pytest.raises(TimedOut):
        async with left.bounds():
            await never
    assert never.cancelled()
    with pytest.raises(TimedOut):
        async with left.bounds():
            await asyncio.Event().wait()


async def test_a_cancellation_from_outside_stays_one() -> None:
    async def wait() -> None:
        async with TimeLeft(3600).bounds():
            await asyncio.Event().wait()

    waiting = asyncio.create_task(wait())
    await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting


async def test_the_end_is_called_unless_it_is_called_off() -> None:
    over = asyncio.Event()
    left = TimeLeft(0.005)
    left.when_over(pytest.fail)()
    left.when_over(over.set, late_s=0.005)
    await over.wait()
    with pytest.raises(TimedOut):
        left.seconds()
