"""What Prometheus is told of batches."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client.core import GaugeMetricFamily
from prometheus_client.core import Metric as Family

from deployments.batches.desk import Counts

GAUGES = {
    "batches": ("stepserve_batches", "Batches that are kept, by their status.", "status"),
    "requests": ("stepserve_batch_requests", "Their requests, by what became of them.", "outcome"),
}


def families(counts: Counts) -> Iterator[Family]:
    """A gauge of each kind that was counted."""
    for kind, values in counts.items():
        name, text, label = GAUGES[kind]
        family = GaugeMetricFamily(name, text, labels=[label])
        for value, count in values.items():
            family.add_metric([value], count)
        yield family
