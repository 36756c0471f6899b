"""The same for Prometheus as of the library's own histogram."""

from __future__ import annotations

import random
from typing import Any

import prometheus_client
import pytest
from prometheus_client import CollectorRegistry

from models.histogram import Histogram
from models.metric_table import METRICS, Kind, Metric

HISTOGRAMS = [metric for metric in METRICS if metric.kind is Kind.HISTOGRAM]


def shown(registry: CollectorRegistry) -> tuple[list[Any], dict[Any, float]]:
    families = [*registry.collect()]
    samples = [sample for one in families for sample in one.samples]
    values = {(s.name, *s.labels.items()): s.value for s in samples if "_created" not in s.name}
    return [(one.name, one.documentation, one.type) for one in families], values


@pytest.mark.parametrize("metric", HISTOGRAMS, ids=lambda metric: metric.name)
def test_equal_values_at_once_count_as_one_by_one(metric: Metric) -> None:
    ours, theirs = CollectorRegistry(), CollectorRegistry()
    one = Histogram(metric, "m")
    ours.register(one)
    other = prometheus_client.Histogram(
        metric.name, metric.help, ["model"], buckets=metric.buckets, registry=theirs
    ).labels("m")
    chance = random.Random(1)
    values = [chance.uniform(0, 2 * metric.buckets[-1]) for _ in range(50)]
    for value in (0.0, *metric.buckets, *values):
        count = chance.randrange(1, 40)
        one.observe(value, count)
        for _ in range(count):
            other.observe(value)
    assert shown(ours)[0] == shown(theirs)[0]
    assert shown(ours)[1] == pytest.approx(shown(theirs)[1], rel=1e-12)
