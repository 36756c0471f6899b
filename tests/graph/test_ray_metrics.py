"""What an engine measures, on the port where Ray shows its own metrics."""

from __future__ import annotations

import asyncio
import time
from contextlib import aclosing

import httpx
import pytest
import ray
from prometheus_client.parser import text_string_to_metric_families

from models.metric_table import METRICS, Kind
from tests.graph.asking import ask, events_of, until_idle
from tests.graph.conftest import RunningGraph

pytestmark = [pytest.mark.slow, pytest.mark.asyncio(loop_scope="session")]

KINDS = {metric.name: metric.kind for metric in METRICS}
GAUGES = {name for name, kind in KINDS.items() if kind is Kind.GAUGE}
PATIENCE_S = 90.0  # Ray gathers its metrics every ten seconds, as QUICKER says
FORGETS_S = 32.0  # and forgets twenty later what was not told again
NOT_ALIKE = ("_sum", "_bucket")  # Ray takes each value for the middle of its bucket


async def test_ray_shows_what_is_counted(graph: RunningGraph) -> None:
    engine = graph.engine("recall")
    for _ in range(2):
        await events_of(engine, ask("measured twice, for the prefix cache", 20))
    measured = await until_idle(engine)
    alike = {name: value for name, value in measured.items() if not name.endswith(NOT_ALIKE)}
    assert {name.split("/")[0].removesuffix("_count") for name in alike} == set(KINDS)
    due = {name: value for name, value in alike.items() if value and name not in GAUGES}
    assert "stepserve_requests_finished_total/length" in due
    assert "stepserve_prefix_cache_hits_total" in due
    await until_shown(due)


async def test_ray_shows_what_has_changed(graph: RunningGraph) -> None:
    engine = graph.engine("recall")
    async with aclosing(engine.generate(ask("runs for a while", 20))) as events:
        await anext(events)
    await until_idle(engine)
    await until_shown({"stepserve_requests_running": 0})


async def test_ray_goes_on_showing_what_does_not_change(graph: RunningGraph) -> None:
    engine = graph.engine("recall")
    await events_of(engine, ask("then nothing", 2))
    await asyncio.sleep(FORGETS_S)
    assert set(await shown_by_ray("recall")) >= GAUGES


async def until_shown(due: dict[str, float]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while missing := dict(due.items() - (await shown_by_ray("recall")).items()):
        assert time.monotonic() < deadline, missing
        await asyncio.sleep(1)


async def shown_by_ray(model: str) -> dict[str, float]:
    """Sums over the replicas, named as our own; of counters by reason too."""
    [node] = ray.nodes()  # type: ignore[no-untyped-call]
    base = f"http://127.0.0.1:{node['MetricsExportPort']}"
    async with httpx.AsyncClient(base_url=base, timeout=60) as http:
        lines = (await http.get("/metrics")).text.splitlines(keepends=True)
    ours = "".join(line for line in lines if "ray_stepserve_" in line)
    totals: dict[str, float] = {}
    for family in text_string_to_metric_families(ours):
        for sample in family.samples:
            if sample.labels["model"] == model:
                reason = sample.labels.get("reason")
                key = sample.name.removeprefix("ray_") + (f"/{reason}" if reason else "")
                totals[key] = totals.get(key, 0) + sample.value
    return totals
