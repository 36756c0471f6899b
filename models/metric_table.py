"""Every metric of stepserve, under names that stay: dashboards and alerts rely on them."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from models.events import FinishReason


class Kind(Enum):
    """How values of a metric combine: added up, set, or counted into buckets."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


@dataclass(frozen=True, slots=True)
class Label:
    """What splits a metric, and all that it can be."""

    name: str
    values: tuple[str, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Metric:
    """A metric's name as Prometheus shows it, and its meaning. ``label`` splits it, if set."""

    name: str
    kind: Kind
    help: str
    buckets: tuple[float, ...] = ()
    label: Label | None = None

    @property
    def family(self) -> str:
        """What Prometheus calls all its samples together."""
        return self.name.removesuffix("_total") if self.kind is Kind.COUNTER else self.name


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


def _counter(name: str, text: str, label: Label | None = None) -> Metric:
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
FINISHED = _counter(
    "requests_finished",
    "Requests by the reason of their end.",
    Label("reason", tuple(reason.value for reason in FinishReason)),
)
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
PROMPT_BUDGET = _gauge(
    "step_prompt_budget", "Prompt tokens that fit into a step beside those who decode."
)
DRAFTED = _counter("drafted_tokens", "Tokens that speculation guessed.")
ACCEPTED = _counter("accepted_tokens", "Tokens that speculation guessed and the model sampled.")

LIMITED = _counter("requests_limited", "Requests refused by a limit of their API key, by kind.")
UNCOUNTED = _counter(
    "requests_uncounted", "Requests of limited keys let in while the counts were not available."
)

OF_LIMITS: tuple[Metric, ...] = (LIMITED, UNCOUNTED)  # of the ingress, where there are rate limits
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
    PROMPT_BUDGET,
    DRAFTED,
    ACCEPTED,
)
