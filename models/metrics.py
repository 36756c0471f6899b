"""Told what happens in an engine, and counts it: for Prometheus, and for any further sink."""

from __future__ import annotations

from collections import Counter as Tally
from collections.abc import Sequence
from typing import Protocol

from prometheus_client import CollectorRegistry, Counter, Gauge

from models.events import FinishReason
from models.histogram import Histogram
from models.metric_table import (
    ACCEPTED,
    ANSWER_SIZE,
    BLOCKS,
    BLOCKS_USED,
    DRAFTED,
    DURATION,
    FINISHED,
    FIRST_TOKEN,
    GENERATED_TOKENS,
    INTER_TOKEN,
    METRICS,
    PREEMPTIONS,
    PREFIX_HITS,
    PREFIX_QUERIES,
    PROMPT_BUDGET,
    PROMPT_SIZE,
    PROMPT_TOKENS,
    QUEUE_TIME,
    REJECTED,
    REQUEST_RATE,
    RUNNING,
    STEP_SEQUENCES,
    STEP_TIME,
    STEP_TOKENS,
    WAITING,
    Kind,
    Metric,
)

Sample = tuple[str, tuple[tuple[str, str], ...], float]
"""A Prometheus sample as it crosses a hop: its name, its labels, its value."""

BURST = 256  # values that are told together: one by one they cost several times as much


class Sink(Protocol):
    """Where measurements go. ``label`` is the value of the metric's label, "" without one."""

    def add(self, metric: Metric, value: float, label: str = "") -> None: ...

    def set(self, metric: Metric, value: float) -> None: ...

    def observe(self, metric: Metric, value: float, count: int = 1) -> None:
        """The same value so many times."""
        ...


class PrometheusSink:
    """Metrics in a registry of their own, labelled by model."""

    def __init__(self, model: str) -> None:
        self._model = model
        self.registry = CollectorRegistry()
        self._counters: dict[tuple[Metric, str], Counter] = {}
        self._gauges: dict[Metric, Gauge] = {}
        self._histograms: dict[Metric, Histogram] = {}
        for metric in METRICS:
            self._register(metric)

    def add(self, metric: Metric, value: float, label: str = "") -> None:
        self._counters[metric, label].inc(value)

    def set(self, metric: Metric, value: float) -> None:
        self._gauges[metric].set(value)

    def observe(self, metric: Metric, value: float, count: int = 1) -> None:
        self._histograms[metric].observe(value, count)

    def samples(self) -> list[Sample]:
        """Everything measured so far."""
        return [
            (sample.name, tuple(sample.labels.items()), sample.value)
            for family in self.registry.collect()
            for sample in family.samples
            if not sample.name.endswith("_created")
        ]

    def _register(self, metric: Metric) -> None:
        name, text, registry = metric.name, metric.help, self.registry
        if metric.kind is Kind.HISTOGRAM:
            self._histograms[metric] = Histogram(metric, self._model)
            registry.register(self._histograms[metric])
        elif metric.kind is Kind.GAUGE:
            gauge = Gauge(name, text, ["model"], registry=registry)
            self._gauges[metric] = gauge.labels(self._model)
        elif metric.label is None:
            counter = Counter(name, text, ["model"], registry=registry)
            self._counters[metric, ""] = counter.labels(self._model)
        else:
            counter = Counter(name, text, ["model", metric.label.name], registry=registry)
            for value in metric.label.values:
                self._counters[metric, value] = counter.labels(self._model, value)


class LlmMetrics:
    """Told what happens in a model's engine: counts it for Prometheus and tells further sinks.

    What steps bring is told to the sinks in bursts, and whenever somebody asks or a request ends.
    What is asked of an ``adapter`` counts as its own; steps, places and blocks are the model's.
    """

    def __init__(
        self, model: str, sinks: Sequence[Sink] = (), adapters: Sequence[LlmMetrics] = ()
    ) -> None:
        self.model = model
        self._adapters = {adapter.model: adapter for adapter in adapters}
        self._prometheus = PrometheusSink(model)
        self._sinks: tuple[Sink, ...] = (self._prometheus, *sinks)
        self._generated = 0  # tokens that the sinks have not been told of
        self._observed: Tally[tuple[Metric, float]] = Tally()  # nor of these, so many times

    @property
    def registry(self) -> CollectorRegistry:
        """For ``prometheus_client`` in one process; over a hop go ``samples``."""
        self._tell()
        return self._prometheus.registry

    def samples(self) -> list[Sample]:
        """Of its adapters too."""
        self._tell()
        adapters = (sample for one in self._adapters.values() for sample in one.samples())
        return [*self._prometheus.samples(), *adapters]

    def of(self, adapter: str | None) -> LlmMetrics:
        """Where what is asked of an adapter counts; None: of the model itself."""
        return self if adapter is None else self._adapters.get(adapter, self)

    def request_finished(
        self,
        reason: FinishReason,
        *,
        prompt_tokens: int | None,
        completion_tokens: int | None,
        queue_s: float | None,
        first_token_s: float | None,
        total_s: float,
    ) -> None:
        """One choice has ended; times run from its arrival, None for what it never reached.

        ``prompt_tokens`` are None but for one choice of those that share a prompt,
        ``completion_tokens`` where none are ever generated.
        """
        self._tell()
        self._add(FINISHED, 1, reason.value)
        if prompt_tokens is not None:
            self._add(PROMPT_TOKENS, prompt_tokens)
            self._observe(PROMPT_SIZE, prompt_tokens)
        if completion_tokens is not None:
            self._observe(ANSWER_SIZE, completion_tokens)
        self._observe(DURATION, total_s)
        if queue_s is not None:
            self._observe(QUEUE_TIME, queue_s)
        if first_token_s is not None:
            self._observe(FIRST_TOKEN, first_token_s)
            later = (completion_tokens or 0) - 1
            if later > 0 and total_s > first_token_s:
                self._observe(REQUEST_RATE, later / (total_s - first_token_s))

    def generated(self, tokens: int) -> None:
        """So many tokens were just generated for one sequence."""
        self._generated += tokens

    def inter_token(self, gap_s: float, tokens: int) -> None:
        """So many tokens of one sequence came, each so long after the one before it."""
        self._observed[INTER_TOKEN, gap_s] += tokens

    def step(self, seconds: float, *, sequences: int, tokens: int) -> None:
        """One step took the model so long, for so many sequences and tokens."""
        for own in (STEP_TIME, seconds), (STEP_SEQUENCES, sequences), (STEP_TOKENS, tokens):
            self._observed[own] += 1
        if self._observed.total() >= BURST:
            self._tell()

    def paced(self, prompt_tokens: int) -> None:
        """So many tokens of prompts fit into a step beside those who decode."""
        self._set(PROMPT_BUDGET, prompt_tokens)

    def drafted(self, tokens: int, accepted: int) -> None:
        """So many tokens were drafted for one sequence, and so many of those were right."""
        self._add(DRAFTED, tokens)
        self._add(ACCEPTED, accepted)

    def rejected(self) -> None:
        self._add(REJECTED, 1)

    def preempted(self, sequences: int) -> None:
        self._add(PREEMPTIONS, sequences)

    def prefix(self, *, queries: int, hits: int) -> None:
        """So many prompt tokens were looked up in the prefix cache, and found there."""
        self._add(PREFIX_QUERIES, queries)
        self._add(PREFIX_HITS, hits)

    def state(self, *, running: int, waiting: int, blocks_used: int, blocks: int) -> None:
        """How things stand now."""
        self._tell()
        self._set(RUNNING, running)
        self._set(WAITING, waiting)
        self._set(BLOCKS_USED, blocks_used)
        self._set(BLOCKS, blocks)

    def _tell(self) -> None:
        tokens, self._generated = self._generated, 0
        observed, self._observed = self._observed, Tally()
        self._add(GENERATED_TOKENS, tokens)
        for (metric, value), count in observed.items():
            self._observe(metric, value, count)

    def _add(self, metric: Metric, value: float, label: str = "") -> None:
        if value:
            for sink in self._sinks:
                sink.add(metric, value, label)

    def _observe(self, metric: Metric, value: float, count: int = 1) -> None:
        for sink in self._sinks:
            sink.observe(metric, value, count)

    def _set(self, metric: Metric, value: int) -> None:
        for sink in self._sinks:
            sink.set(metric, value)
