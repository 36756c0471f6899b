from __future__ import annotations

from prometheus_client import generate_latest

from models.events import FinishReason
from models.metric_table import METRICS, Kind, Metric
from models.metrics import BURST, LlmMetrics

NAMES = {
    "stepserve_time_to_first_token_seconds",
    "stepserve_inter_token_latency_seconds",
    "stepserve_request_duration_seconds",
    "stepserve_queue_time_seconds",
    "stepserve_request_tokens_per_second",
    "stepserve_request_prompt_tokens",
    "stepserve_request_generated_tokens",
    "stepserve_requests_finished_total",
    "stepserve_requests_rejected_total",
    "stepserve_prompt_tokens_total",
    "stepserve_generated_tokens_total",
    "stepserve_requests_running",
    "stepserve_requests_waiting",
    "stepserve_kv_blocks",
    "stepserve_kv_blocks_used",
    "stepserve_prefix_cache_queries_total",
    "stepserve_prefix_cache_hits_total",
    "stepserve_preemptions_total",
    "stepserve_model_step_seconds",
    "stepserve_step_sequences",
    "stepserve_step_tokens",
    "stepserve_drafted_tokens_total",
    "stepserve_accepted_tokens_total",
    "stepserve_step_prompt_budget",
}


class ListSink:
    def __init__(self) -> None:
        self.seen: list[tuple[str, float, str]] = []

    def add(self, metric: Metric, value: float, label: str = "") -> None:
        self.seen.append((metric.name, value, label))

    def set(self, metric: Metric, value: float) -> None:
        self.seen.append((metric.name, value, ""))

    def observe(self, metric: Metric, value: float, count: int = 1) -> None:
        self.seen += [(metric.name, value, "")] * count


def values(metrics: LlmMetrics) -> dict[str, float]:
    return {
        name: value for name, labels, value in metrics.samples() if labels == (("model", "model"),)
    }


def finish(metrics: LlmMetrics, reason: FinishReason = FinishReason.STOP) -> None:
    metrics.request_finished(
        reason, prompt_tokens=7, completion_tokens=11, queue_s=0.1, first_token_s=0.5, total_s=2.5
    )


def test_the_names_are_stable() -> None:
    assert {metric.name for metric in METRICS} == NAMES


def test_every_metric_is_shown_before_anything_has_happened() -> None:
    text = generate_latest(LlmMetrics("model").registry).decode()
    for metric in METRICS:
        suffix = "_bucket{" if metric.kind is Kind.HISTOGRAM else ""
        assert metric.name + suffix in text, metric.name


def test_a_split_metric_is_shown_for_all_that_its_label_can_be() -> None:
    samples = LlmMetrics("model").samples()
    shown = {(name, *pair) for name, labels, _ in samples for pair in labels if pair[0] != "model"}
    labels = [(metric.name, metric.label) for metric in METRICS if metric.label]
    due = {(name, label.name, value) for name, label in labels for value in label.values}
    assert due <= shown
    assert {value for _, _, value in due} == {*FinishReason}


def test_a_finished_request_is_counted_by_its_reason_and_its_tokens() -> None:
    metrics = LlmMetrics("model")
    finish(metrics, FinishReason.LENGTH)
    samples = {
        (name, dict(labels).get("reason")): value for name, labels, value in metrics.samples()
    }
    assert samples["stepserve_requests_finished_total", "length"] == 1
    assert samples["stepserve_requests_finished_total", "stop"] == 0
    assert samples["stepserve_prompt_tokens_total", None] == 7
    assert samples["stepserve_request_generated_tokens_sum", None] == 11
    assert samples["stepserve_request_tokens_per_second_sum", None] == 5.0


def test_a_request_that_never_ran_has_no_times_but_its_total() -> None:
    metrics = LlmMetrics("model")
    metrics.request_finished(
        FinishReason.CANCELLED,
        prompt_tokens=7,
        completion_tokens=0,
        queue_s=None,
        first_token_s=None,
        total_s=1.0,
    )
    counts = values(metrics)
    assert counts["stepserve_request_duration_seconds_count"] == 1
    assert counts["stepserve_time_to_first_token_seconds_count"] == 0
    assert counts["stepserve_queue_time_seconds_count"] == 0
    assert counts["stepserve_request_tokens_per_second_count"] == 0


def test_steps_gaps_prefixes_and_the_state_are_measured() -> None:
    metrics = LlmMetrics("model")
    metrics.step(0.02, sequences=3, tokens=40)
    metrics.inter_token(0.01, 2)
    metrics.prefix(queries=10, hits=8)
    metrics.generated(5)
    metrics.preempted(2)
    metrics.rejected()
    metrics.state(running=3, waiting=1, blocks_used=5, blocks=9)
    metrics.paced(96)
    metrics.drafted(8, accepted=3)
    seen = values(metrics)
    assert seen["stepserve_drafted_tokens_total"] == 8
    assert seen["stepserve_accepted_tokens_total"] == 3
    assert seen["stepserve_step_prompt_budget"] == 96
    assert seen["stepserve_model_step_seconds_sum"] == 0.02
    assert seen["stepserve_step_sequences_sum"] == 3
    assert seen["stepserve_step_tokens_sum"] == 40
    assert seen["stepserve_inter_token_latency_seconds_count"] == 2
    assert seen["stepserve_generated_tokens_total"] == 5
    assert seen["stepserve_prefix_cache_queries_total"] == 10
    assert seen["stepserve_prefix_cache_hits_total"] == 8
    assert seen["stepserve_preemptions_total"] == 2
    assert seen["stepserve_requests_rejected_total"] == 1
    assert seen["stepserve_requests_running"] == 3
    assert seen["stepserve_requests_waiting"] == 1
    assert seen["stepserve_kv_blocks_used"] == 5
    assert seen["stepserve_kv_blocks"] == 9


def test_further_sinks_see_the_same() -> None:
    sink = ListSink()
    metrics = LlmMetrics("model", [sink])
    finish(metrics)
    metrics.state(running=1, waiting=0, blocks_used=0, blocks=4)
    assert ("stepserve_requests_finished_total", 1, "stop") in sink.seen
    assert ("stepserve_requests_running", 1, "") in sink.seen
    assert ("stepserve_time_to_first_token_seconds", 0.5, "") in sink.seen


def test_sinks_hear_of_steps_by_themselves_once_there_is_a_burst() -> None:
    sink = ListSink()
    metrics = LlmMetrics("model", [sink])
    for _ in range(BURST):
        metrics.generated(3)
        metrics.inter_token(0.5, 1)
        metrics.step(0.5, sequences=1, tokens=1)
    told = {name: sum(value for seen, value, _ in sink.seen if seen == name) for name in NAMES}
    assert told["stepserve_generated_tokens_total"] == 3 * BURST
    assert told["stepserve_inter_token_latency_seconds"] == 0.5 * BURST
    assert told["stepserve_model_step_seconds"] == 0.5 * BURST


def test_sinks_hear_of_the_last_steps_with_the_state_and_with_an_end() -> None:
    sink = ListSink()
    metrics = LlmMetrics("model", [sink])
    metrics.step(0.25, sequences=1, tokens=1)
    assert not sink.seen
    metrics.state(running=0, waiting=0, blocks_used=0, blocks=4)
    assert ("stepserve_model_step_seconds", 0.25, "") in sink.seen
    metrics.step(0.75, sequences=1, tokens=1)
    finish(metrics)
    assert ("stepserve_model_step_seconds", 0.75, "") in sink.seen


def test_an_unchanged_state_is_told_again() -> None:
    sink = ListSink()
    metrics = LlmMetrics("model", [sink])
    for _ in range(3):
        metrics.state(running=1, waiting=0, blocks_used=2, blocks=4)
    assert len(sink.seen) == 12
