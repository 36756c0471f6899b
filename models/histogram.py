"""A Prometheus histogram that takes many equal values at once, which the library's own does not."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from itertools import accumulate

from prometheus_client.metrics_core import HistogramMetricFamily

from models.metric_table import Metric


class Histogram:
    """One metric of one model, for a registry to collect."""

    def __init__(self, metric: Metric, model: str) -> None:
        self._metric = metric
        self._model = model
        self._counts = [0] * (len(metric.buckets) + 1)  # the last is of what is above all bounds
        self._sum = 0.0

    def observe(self, value: float, count: int) -> None:
        """The same value so many times; a bound belongs to the bucket below it."""
        self._counts[bisect_left(self._metric.buckets, value)] += count
        self._sum += value * count

    def collect(self) -> Iterator[HistogramMetricFamily]:
        family = HistogramMetricFamily(self._metric.name, self._metric.help, labels=["model"])
        bounds = [*map(str, self._metric.buckets), "+Inf"]
        counts = map(float, accumulate(self._counts))
        family.add_metric([self._model], [*zip(bounds, counts, strict=True)], self._sum)
        yield family
