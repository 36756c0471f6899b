"""What is measured of one engine, under names that stay: one table, any number of sinks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Protocol

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from models.events import FinishReason


class Kind(Enum):
    """How values of a metric combine: added up, set, or counted into buckets."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


@dataclass(frozen=True, slots=True, eq=False)
class Metric:
    """A metric's name as Prometheus shows it, and its meaning. ``label`` splits it, if set."""

    name: str
    kind: Kind
    help: str
    buckets: tuple[float, ...] = ()
    label: str | None = None


_FAST = (0.001, 0.0025, 0.005, 0.0075, 0.01, 0.015, 0.02, 0.03, 0.04, 0.05, 0.075, 0.1)
_STEP = (*_FAST, 0.15, 0.25, 0.5, 1.0, 2.0)
_FIRST = (
    0.005,
    0.01,
    0.02,
    0.04,
    0.06,
    0.1,
    0.15,
    0.25,
    0.5,
    0.75,
    1.0,
    2.5,
    5.0,
    10.0,
    30.0,
    60.0,
)
_TOTAL = (0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 20.0, 30.0, 60.0, 120.0, 300.0, 600.0)
_QUEUE = (0.001, 0.005, 0.01, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0)
_RATE = (1.0, 2.0, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 75.0, 100.0, 150.0, 200.0, 300.0, 500.0)
_SIZE = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0)
_TOKENS = (*_SIZE, 1024.0, 2048.0, 4096.0, 8192.0, 16384.0, 32768.0, 65536.0, 131072.0)


def _counter(name: str, text: str, label: str | None = None) -> Metric:
    return Metric(f"stepserve_{name}_total", Kind.COUNTER, text, label=label)


def _gauge(name: str, text: str) -> Metric:
    return Metric(f"stepserve_{name}", Kind.GAUGE, text)


def _histogram(name: str, text: str, buckets: tuple[float, ...]) -> Metric:
    return Metric(f"stepserve_{name}", Kind.HISTOGRAM, text, buckets)


FIRST_TOKEN = _histogram(
    "time_to_first_token_seconds", "From a request's arrival to its first token.", _FIRST
)
INTER_TOKEN = _histogram(
    "inter_token_latency_seconds", "Between two tokens of one sequence.", _STEP
)
DURATION = _histogram(
    "request_duration_seconds", "From a request's arrival to its last token.", _TOTAL
)
QUEUE_TIME = _histogram(
    "queue_time_seconds", "From a request's arrival until it took part in steps.", _QUEUE
)
REQUEST_RATE = _histogram(
    "request_tokens_per_second",
    "Generated tokens of one request a second, from its first token on.",
    _RATE,
)
PROMPT_SIZE = _histogram("request_prompt_tokens", "Prompt tokens of one request.", _TOKENS)
ANSWER_SIZE = _histogram("request_generated_tokens", "Generated tokens of one request.", _TOKENS)
FINISHED = _counter("requests_finished", "Requests by the reason of their end.", label="reason")
REJECTED = _counter("requests_rejected", "Requests turned away because the model was busy.")
PROMPT_TOKENS = _counter("prompt_tokens", "Prompt tokens of all requests.")
GENERATED_TOKENS = _counter("generated_tokens", "Generated tokens; its rate is tokens per second.")
RUNNING = _gauge("requests_running", "Sequences that take part in steps.")
WAITING = _gauge("requests_waiting", "Sequences in the queue.")
BLOCKS = _gauge("kv_blocks", "KV blocks in the pool.")
BLOCKS_USED = _gauge("kv_blocks_used", "KV blocks that running sequences hold.")
PREFIX_QUERIES = _counter("prefix_cache_queries", "Prompt tokens looked up in the prefix cache.")
PREFIX_HITS = _counter("prefix_cache_hits", "Prompt tokens found in the prefix cache.")
PREEMPTIONS = _counter("preemptions", "Sequences that lost their blocks to others for a while.")
STEP_TIME = _histogram("model_step_seconds", "Model time of one step.", _STEP)
STEP_SEQUENCES = _histogram("step_sequences", "Sequences in one step.", _SIZE)
STEP_TOKENS = _histogram("step_tokens", "Tokens computed in one step.", _TOKENS)

METRICS: tuple[Metric, ...] = (
    FIRST_TOKEN,
    INTER_TOKEN,
    DURATION,
    QUEUE_TIME,
    REQUEST_RATE,
    PROMPT_SIZE,
    ANSWER_SIZE,
    FINISHED,
    REJECTED,
    PROMPT_TOKENS,
    GENERATED_TOKENS,
    RUNNING,
    WAITING,
    BLOCKS,
    BLOCKS_USED,
    PREFIX_QUERIES,
    PREFIX_HITS,
    PREEMPTIONS,
    STEP_TIME,
    STEP_SEQUENCES,
    STEP_TOKENS,
)

Sample = tuple[str, tuple[tuple[str, str], ...], float]
"""A Prometheus sample as it crosses a hop: its name, its labels, its value."""


class Sink(Protocol):
    """Where measurements go. ``label`` is the value of the metric's label, "" without one."""

    def add(self, metric: Metric, value: float, label: str = "") -> None: ...

    def set(self, metric: Metric, value: float) -> None: ...

    def observe(self, metric: Metric, value: float) -> None: ...


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

    def observe(self, metric: Metric, value: float) -> None:
        self._histograms[metric].observe(value)

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
            histogram = Histogram(name, text, ["model"], buckets=metric.buckets, registry=registry)
            self._histograms[metric] = histogram.labels(self._model)
        elif metric.kind is Kind.GAUGE:
            gauge = Gauge(name, text, ["model"], registry=registry)
            self._gauges[metric] = gauge.labels(self._model)
        elif metric.label is None:
            counter = Counter(name, text, ["model"], registry=registry)
            self._counters[metric, ""] = counter.labels(self._model)
        else:
            counter = Counter(name, text, ["model", metric.label], registry=registry)
            for reason in FinishReason:
                self._counters[metric, reason.value] = counter.labels(self._model, reason.value)


class LlmMetrics:
    """Told what happens in a model's engine: counts it for Prometheus and tells further sinks."""

    def __init__(self, model: str, sinks: Sequence[Sink] = ()) -> None:
        self._prometheus = PrometheusSink(model)
        self._sinks: tuple[Sink, ...] = (self._prometheus, *sinks)
        self._state: dict[Metric, int] = {}

    @property
    def registry(self) -> CollectorRegistry:
        """For ``prometheus_client`` in one process; over a hop go ``samples``."""
        return self._prometheus.registry

    def samples(self) -> list[Sample]:
        return self._prometheus.samples()

    def request_finished(
        self,
        reason: FinishReason,
        *,
        prompt_tokens: int,
        completion_tokens: int,
        queue_s: float | None,
        first_token_s: float | None,
        total_s: float,
    ) -> None:
        """One request has ended; times run from its arrival, None for what it never reached."""
        self._add(FINISHED, 1, reason.value)
        self._add(PROMPT_TOKENS, prompt_tokens)
        self._add(GENERATED_TOKENS, completion_tokens)
        self._observe(PROMPT_SIZE, prompt_tokens)
        self._observe(ANSWER_SIZE, completion_tokens)
        self._observe(DURATION, total_s)
        if queue_s is not None:
            self._observe(QUEUE_TIME, queue_s)
        if first_token_s is not None:
            self._observe(FIRST_TOKEN, first_token_s)
            if completion_tokens > 1 and total_s > first_token_s:
                self._observe(REQUEST_RATE, (completion_tokens - 1) / (total_s - first_token_s))

    def inter_token(self, gaps_s: Sequence[float]) -> None:
        """Seconds between successive tokens of one sequence."""
        for gap in gaps_s:
            self._observe(INTER_TOKEN, gap)

    def step(self, seconds: float, *, sequences: int, tokens: int) -> None:
        """One step took the model so long, for so many sequences and tokens."""
        self._observe(STEP_TIME, seconds)
        self._observe(STEP_SEQUENCES, sequences)
        self._observe(STEP_TOKENS, tokens)

    def rejected(self) -> None:
        self._add(REJECTED, 1)

    def preempted(self, sequences: int) -> None:
        self._add(PREEMPTIONS, sequences)

    def prefix(self, *, queries: int, hits: int) -> None:
        """So many prompt tokens were looked up in the prefix cache, and found there."""
        self._add(PREFIX_QUERIES, queries)
        self._add(PREFIX_HITS, hits)

    def state(self, *, running: int, waiting: int, blocks_used: int, blocks: int) -> None:
        """How things stand now; cheap when nothing has changed."""
        self._set(RUNNING, running)
        self._set(WAITING, waiting)
        self._set(BLOCKS_USED, blocks_used)
        self._set(BLOCKS, blocks)

    def _add(self, metric: Metric, value: float, label: str = "") -> None:
        if value:
            for sink in self._sinks:
                sink.add(metric, value, label)

    def _observe(self, metric: Metric, value: float) -> None:
        for sink in self._sinks:
            sink.observe(metric, value)

    def _set(self, metric: Metric, value: int) -> None:
        if self._state.get(metric) != value:
            self._state[metric] = value
            for sink in self._sinks:
                sink.set(metric, value)
