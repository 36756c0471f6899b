"""Failures are told in our words, and the graph recovers."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing, contextmanager
from dataclasses import replace
from uuid import uuid4

import httpx
import pytest

from deployments.remote import RemoteEngine
from models.errors import Failed, TimedOut
from models.events import Event, FinishReason
from models.request import GenerateRequest
from tests.deployments.serving import eventually
from tests.graph.asking import (
    PATIENCE_S,
    answer_to,
    ask,
    drain,
    events_of,
    finishes,
    text_of,
    until_idle,
    until_replaced,
    until_well,
)
from tests.graph.conftest import RunningGraph

pytestmark = [pytest.mark.slow, pytest.mark.asyncio(loop_scope="session")]

BEGINNINGS = 20  # a busy machine may take longer than a request gives itself


async def begin(engine: RemoteEngine, request: GenerateRequest) -> AsyncGenerator[Event, None]:
    """An answer whose first event has come: asked anew where its time was over before."""
    for _ in range(BEGINNINGS):
        events = engine.generate(replace(request, id=uuid4().hex))
        try:
            await anext(events)
        except TimedOut:
            continue
        return events
    raise AssertionError("the first event never came in time")


async def well_process(engine: RemoteEngine) -> int:
    """The process of a replica that has just answered."""
    await until_well(engine, "warm")
    return int((await engine.describe())["pid"])


@contextmanager
def frozen(process: int) -> Iterator[None]:
    os.kill(process, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(process, signal.SIGCONT)


async def test_an_engine_that_crashes_fails_its_request_in_its_own_words(
    graph: RunningGraph,
) -> None:
    with pytest.raises(Failed, match="The engine failed: RuntimeError: The mock engine") as failed:
        await events_of(graph.engine("crash"), ask())
    assert "Traceback" not in failed.value.message


async def test_a_replica_lost_before_the_first_token_is_replaced_by_another(
    graph: RunningGraph,
) -> None:
    engine = graph.engine("fragile")
    life = graph.lives / "one"
    life.touch()
    patient = asyncio.create_task(events_of(engine, ask("A", 5)))
    await eventually(lambda: not life.exists(), 60)
    with pytest.raises(TimedOut):
        await events_of(engine, replace(ask(), timeout_s=0.3))
    assert text_of(await asyncio.wait_for(patient, 90)) == answer_to("A", 5)
    await until_idle(engine)


async def test_a_replica_lost_later_fails_its_requests_soon(graph: RunningGraph) -> None:
    engine = graph.engine("fragile")
    await until_well(engine, "warm")
    async with aclosing(engine.generate(ask("long", 400))) as events:
        await anext(events)
        (graph.lives / "one").touch()
        killer = asyncio.create_task(events_of(engine, ask("A", 5)))
        with pytest.raises(Failed, match="replica"):
            await asyncio.wait_for(drain(events), 20)
    assert text_of(await asyncio.wait_for(killer, 90)) == answer_to("A", 5)


async def test_a_frozen_replica_holds_up_neither_metrics_nor_the_other_models(
    graph: RunningGraph,
) -> None:
    process = await well_process(graph.engine("fragile"))
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{graph.port}") as client:
        with frozen(process):
            metrics = await client.get("/metrics", timeout=30)
            ready = await client.get("/ready", timeout=30)
    assert 'stepserve_replicas_scraped{model="fragile"} 0.0' in metrics.text
    assert 'stepserve_replicas_scraped{model="recall"} 1.0' in metrics.text
    assert ready.status_code == 503
    assert ready.json()["models"]["fragile"]["status"] == "no replica answers"
    assert ready.json()["models"]["recall"]["status"] == "ready"


async def test_a_frozen_replica_is_waited_for_no_longer_than_the_timeout(
    graph: RunningGraph,
) -> None:
    engine = graph.engine("fragile")
    process = await well_process(engine)
    begun = await begin(engine, replace(ask("long", 400), timeout_s=0.7))
    async with aclosing(begun) as events:
        with frozen(process):
            (end,) = finishes([event async for event in events]).values()
            with pytest.raises(TimedOut):
                await events_of(engine, replace(ask(), timeout_s=0.1))
    assert end.reason is FinishReason.LENGTH
    assert end.usage.completion_tokens < 400
    await until_idle(engine)
    assert text_of(await events_of(engine, ask("well"))) == answer_to("well", 8)


async def test_a_failed_step_is_told_and_the_replica_is_replaced(graph: RunningGraph) -> None:
    engine = graph.engine("fragile")
    await until_well(engine, "warm")
    with pytest.raises(Failed, match="this token is cursed"):
        await events_of(engine, ask("B"))
    states = await engine.ask_replicas("describe", timeout_s=PATIENCE_S)
    assert "a step failed" in states[0]["problem"]
    await until_replaced(engine)
    assert text_of(await until_well(engine, "well")) == answer_to("well", 8)
