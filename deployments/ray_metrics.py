"""The same measurements through Ray's own metrics, one series a replica."""

from __future__ import annotations

from typing import Any

from ray.serve import metrics
from ray.util.metrics import Histogram

from models.metric_table import METRICS, Kind, Metric


class RaySink:
    """For use inside a replica. Ray adds ``ray_`` to the names, and the replica to the labels."""

    def __init__(self, model: str) -> None:
        self._model = model
        self._counters: dict[Metric, metrics.Counter] = {}
        self._gauges: dict[Metric, metrics.Gauge] = {}
        self._histograms: dict[Metric, metrics.Histogram] = {}
        for metric in METRICS:
            self._register(metric)

    def add(self, metric: Metric, value: float, label: str = "") -> None:
        self._counters[metric].inc(value, {metric.label.name: label} if metric.label else {})

    def set(self, metric: Metric, value: float) -> None:
        self._gauges[metric].set(value)

    def observe(self, metric: Metric, value: float, count: int = 1) -> None:
        histogram = self._histograms[metric]
        for _ in range(count):  # not by Serve's own method, which looks for a request's route first
            Histogram.observe(histogram, value)

    def _register(self, metric: Metric) -> None:
        name = metric.family  # Ray adds `_total` to counters
        keys: Any = ("model",) if metric.label is None else ("model", metric.label.name)
        if metric.kind is Kind.COUNTER:
            self._counters[metric] = metrics.Counter(name, metric.help, keys)
            self._counters[metric].set_default_tags({"model": self._model})
        elif metric.kind is Kind.GAUGE:
            self._gauges[metric] = metrics.Gauge(name, metric.help, keys)
            self._gauges[metric].set_default_tags({"model": self._model})
        else:
            boundaries = list(metric.buckets)
            self._histograms[metric] = metrics.Histogram(name, metric.help, boundaries, keys)
            self._histograms[metric].set_default_tags({"model": self._model})
