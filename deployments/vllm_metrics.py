"""The same measurements once more, under the names that vLLM's dashboards and autoscalers ask for.

The names and labels are those of vLLM 0.33 (`vllm/v1/metrics/loggers.py`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from prometheus_client.core import Metric as Family

from models.events import FinishReason
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
    PREEMPTIONS,
    PREFIX_HITS,
    PREFIX_QUERIES,
    PROMPT_SIZE,
    PROMPT_TOKENS,
    QUEUE_TIME,
    RUNNING,
    STEP_TOKENS,
    WAITING,
    Kind,
    Metric,
)

USAGE = "vllm:kv_cache_usage_perc"
NAMES: dict[Metric, str] = {
    RUNNING: "vllm:num_requests_running",
    WAITING: "vllm:num_requests_waiting",
    PREFIX_QUERIES: "vllm:prefix_cache_queries_total",
    PREFIX_HITS: "vllm:prefix_cache_hits_total",
    PREEMPTIONS: "vllm:num_preemptions_total",
    PROMPT_TOKENS: "vllm:prompt_tokens_total",
    GENERATED_TOKENS: "vllm:generation_tokens_total",
    FINISHED: "vllm:request_success_total",
    FIRST_TOKEN: "vllm:time_to_first_token_seconds",
    INTER_TOKEN: "vllm:inter_token_latency_seconds",
    DURATION: "vllm:e2e_request_latency_seconds",
    QUEUE_TIME: "vllm:request_queue_time_seconds",
    PROMPT_SIZE: "vllm:request_prompt_tokens",
    ANSWER_SIZE: "vllm:request_generation_tokens",
    STEP_TOKENS: "vllm:iteration_tokens_total",  # a histogram, as it is there
    DRAFTED: "vllm:spec_decode_num_draft_tokens_total",
    ACCEPTED: "vllm:spec_decode_num_accepted_tokens_total",
}
LABELS = {"model": "model_name", "reason": "finished_reason", "le": "le"}
REASONS = {
    FinishReason.TOOL_CALLS.value: FinishReason.STOP.value,
    FinishReason.CANCELLED.value: "abort",
}


def with_vllm_names(families: Iterable[Family]) -> Iterator[Family]:
    """``families`` of the metric table as they are, and behind them those that vLLM has too."""
    known = {family.name: family for family in families}
    yield from known.values()
    for metric, name in NAMES.items():
        yield _renamed(known[metric.family], metric, name)
    yield _usage(known[BLOCKS_USED.name], known[BLOCKS.name])


def _renamed(family: Family, metric: Metric, name: str) -> Family:
    sums: dict[tuple[str, tuple[tuple[str, str], ...]], float] = {}
    for sample in family.samples:
        key = name + sample.name.removeprefix(metric.name), tuple(_labels(sample.labels).items())
        sums[key] = sums.get(key, 0.0) + sample.value
    own = name.removesuffix("_total") if metric.kind is Kind.COUNTER else name
    made = Family(own, family.documentation, family.type)
    for (sample_name, labels), value in sums.items():
        made.add_sample(sample_name, dict(labels), value)
    return made


def _labels(labels: Mapping[str, str]) -> dict[str, str]:
    named = {LABELS[name]: REASONS.get(value, value) for name, value in labels.items()}
    return {"engine": "0", **named}


def _usage(used: Family, blocks: Family) -> Family:
    made = Family(USAGE, "Part of the KV blocks that running sequences hold, 0 to 1.", "gauge")
    held = {sample.labels["model"]: sample.value for sample in used.samples}
    for sample in blocks.samples:
        share = held[sample.labels["model"]] / sample.value if sample.value else 0.0
        made.add_sample(USAGE, _labels(sample.labels), share)
    return made
