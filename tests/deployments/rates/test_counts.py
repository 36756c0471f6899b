"""Counters in memory and in Redis, and what becomes of requests where they fail."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator

import pytest
from redis.asyncio import Redis

from deployments.rates.counts import LIFE_S, Amounts, Counts, LenientCounts, MemoryCounts
from deployments.rates.redis_counts import PREFIX, RedisCounts
from models.errors import Failed
from tests.deployments.rates.clock import Clock
from tests.deployments.rates.redis_server import needs_redis, redis_server
from tests.deployments.serving import eventually


class Broken:
    """Counts that fail, or never answer, and those who asked."""

    def __init__(self, hangs: bool = False) -> None:
        self.asked = 0
        self._hangs = hangs

    async def add(self, amounts: Amounts) -> dict[str, int]:
        self.asked += 1
        if self._hangs:
            await asyncio.Event().wait()
        raise Failed("The counts are gone.")


@pytest.fixture(params=["memory", pytest.param("redis", marks=needs_redis)])
def counts(request: pytest.FixtureRequest) -> Iterator[Counts]:
    if request.param == "memory":
        yield MemoryCounts()
    else:
        with redis_server() as uri:
            yield RedisCounts(uri)


async def test_counters_add_up(counts: Counts) -> None:
    assert await counts.add({"a": 3, "b": 0}) == {"a": 3, "b": 0}
    assert await counts.add({"b": 0, "a": -1, "c": 5}) == {"b": 0, "a": 2, "c": 5}
    assert await counts.add({"a": 0, "c": -4}) == {"a": 2, "c": 1}


async def test_no_counter_falls_below_zero(counts: Counts) -> None:
    assert await counts.add({"a": -5, "b": 3}) == {"a": 0, "b": 3}
    assert await counts.add({"a": 2, "b": -4}) == {"a": 2, "b": 0}
    assert await counts.add({"a": 0, "b": 1}) == {"a": 2, "b": 1}


async def test_many_at_once_lose_nothing(counts: Counts) -> None:
    await counts.add({"b": 60})
    await asyncio.gather(*(counts.add({"a": 2, "b": -1}) for _ in range(50)))
    assert await counts.add({"a": 0, "b": 0}) == {"a": 100, "b": 10}


async def test_counters_in_memory_are_forgotten_in_their_time() -> None:
    clock = Clock()
    counts = MemoryCounts(clock)
    await counts.add({"a": 1})
    clock.pass_by(LIFE_S - 1)
    assert await counts.add({"a": 1, "b": 1}) == {"a": 2, "b": 1}
    clock.pass_by(1)
    assert await counts.add({"a": 0, "b": 0}) == {"a": 0, "b": 1}
    assert counts.size == 1


@needs_redis
async def test_counters_in_redis_are_shared_and_have_an_end() -> None:
    with redis_server() as uri:
        one, other = RedisCounts(uri), RedisCounts(uri)
        await one.add({"a": 1})
        assert await other.add({"a": 1}) == {"a": 2}
        life = await Redis.from_url(uri).ttl(PREFIX + "a")
        assert life == pytest.approx(LIFE_S, abs=5)


@needs_redis
async def test_a_redis_that_is_gone_is_an_error_of_ours() -> None:
    with redis_server() as uri:
        counts = RedisCounts(uri)
        await counts.add({"a": 1})
    with pytest.raises(Failed):
        await counts.add({"a": 1})


@pytest.mark.parametrize("hangs", [False, True])
async def test_counts_that_fail_hold_nobody_up(
    hangs: bool, caplog: pytest.LogCaptureFixture
) -> None:
    broken = Broken(hangs)
    lenient = LenientCounts(broken, timeout_s=0.01, pause_s=0.05)
    with caplog.at_level(logging.WARNING):
        assert [await lenient.add({"a": 1}) for _ in range(5)] == [None] * 5
    assert broken.asked == 1  # the others are let in without
    assert "rate limits are not available" in caplog.text
    await asyncio.sleep(0.06)
    assert await lenient.add({"a": 1}) is None
    assert broken.asked == 2


async def test_what_its_caller_gave_up_is_counted_all_the_same() -> None:
    counts = MemoryCounts()
    lenient = LenientCounts(counts)
    task = asyncio.create_task(lenient.add({"a": 1}))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await eventually(lambda: counts.size == 1)
