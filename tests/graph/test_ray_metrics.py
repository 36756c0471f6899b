"""What an engine measures, on the port where Ray shows its own metrics."""

from __future__ import annotations

import asyncio
import time

import httpx
import pytest
import ray
from prometheus_client.parser import text_string_to_metric_families

from models.metric_table import METRICS
from tests.graph.asking import ask, events_of, until_idle
from tests.graph.conftest import RunningGraph

pytestmark = [pytest.mark.slow, pytest.mark.asyncio(loop_scope="session")]

PATIENCE_S = 90.0  # Ray gathers its metrics every few seconds
NOT_ALIKE = ("_sum", "_bucket")  # Ray takes each value for the middle of its bucket


async def test_ray_shows_what_is_measured(graph: RunningGraph) -> None:
    engine = graph.engine("recall")
    for _ in range(2):
        await events_of(engine, ask("measured twice, for the prefix cache", 20))
    measured = await until_idle(engine)
    alike = {name: value for name, value in measured.items() if not name.endswith(NOT_ALIKE)}
    due = {name: value for name, value in alike.items() if value}  # Ray shows none never touched
    named = {metric.name for metric in METRICS}
    assert {name.split("/")[0].removesuffix("_count") for name in alike} == named
    assert "stepserve_requests_finished_total/length" in due
    assert "stepserve_prefix_cache_hits_total" in due

    deadline = time.monotonic() + PATIENCE_S
    while (shown := await shown_by_ray("recall")) != shown | due:
        assert time.monotonic() < deadline, {name: (due[name], shown.get(name)) for name in due}
        await asyncio.sleep(1)
    assert shown["stepserve_requests_running"] == 0


async def shown_by_ray(model: str) -> dict[str, float]:
    """Sums over the replicas, named as our own; of counters by reason too."""
    [node] = ray.nodes()  # type: ignore[no-untyped-call]
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{node['MetricsExportPort']}") as http:
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
