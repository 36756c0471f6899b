from __future__ import annotations

import asyncio
import random

import pytest

from models.mock import MockEngine
from tests.bench.client import Endpoint, over_http
from tests.bench.endurance import Load, blocks_held, client, held_in, table
from tests.bench.prompts import Prompts
from tests.bench.sse import Stream
from tests.deployments.serving import listening, make_app


async def _loaded(engine: MockEngine) -> Load:
    """After an error, or after some answers of both kinds."""
    load = Load()
    with listening(make_app(engine)) as url:
        ask = over_http(Endpoint(url, "mock"))
        asking = client(ask, Prompts.of_words(), random.Random(1), load)
        task = asyncio.create_task(asking)
        async with asyncio.timeout(10):
            while not (load.errors or (load.broken_off >= 2 and load.whole >= 2)):
                await asyncio.wait([task], timeout=0.05)
        task.cancel()
    return load


async def test_some_answers_are_broken_off_and_all_others_are_whole() -> None:
    load = await _loaded(MockEngine("mock"))
    assert load.whole >= 2
    assert load.broken_off >= 2
    assert load.errors == []


async def test_an_answer_that_is_not_whole_is_told() -> None:
    load = await _loaded(MockEngine("mock", failure="failed", fail_after=2))
    assert load.errors


async def test_an_answer_that_does_not_end_is_told() -> None:
    async def ask(prompt: str, tokens: int, stream: Stream) -> None:
        await asyncio.Event().wait()

    with pytest.raises(TimeoutError):
        await client(ask, Prompts.of_words(), random.Random(1), Load(), late_s=0.01)


def test_metrics_that_do_not_tell_are_no_proof() -> None:
    """A mock engine has no replica that could tell of its blocks."""
    with (
        listening(make_app(MockEngine("mock"))) as url,
        pytest.raises(RuntimeError, match="no KV blocks"),
    ):
        blocks_held(url)


def test_the_table_has_medians_of_each_sixth() -> None:
    samples = [{"ingress": float(i)} for i in range(12)]
    *_, row = table(samples)
    assert row == "| ingress | 0 | 2 | 4 | 6 | 8 | 10 |"


def test_a_process_that_came_late_has_no_earlier_memory() -> None:
    *_, row = table([{}] * 6 + [{"model": 100.0}] * 6)
    assert row == "| model | – | – | – | 100 | 100 | 100 |"


def test_held_blocks_are_read_from_the_metrics() -> None:
    replicas = [f'stepserve_kv_blocks_used{{replica="{name}"}} 3.0' for name in "ab"]
    told = ["# TYPE stepserve_kv_blocks_used gauge", *replicas, "stepserve_kv_blocks 9.0", ""]
    assert held_in("\n".join(told)) == 6
    with pytest.raises(RuntimeError, match="no KV blocks"):
        held_in("stepserve_kv_blocks 9.0\n")
