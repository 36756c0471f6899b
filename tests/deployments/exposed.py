"""What replicas measured, and what Prometheus would read."""

from __future__ import annotations

from collections.abc import Sequence

from models.events import FinishReason
from models.metrics import LlmMetrics, Sample


def samples(
    model: str, *, running: int, waiting: int = 0, finished: Sequence[FinishReason] = ()
) -> list[Sample]:
    """Of a replica that has finished a request by each of these reasons."""
    metrics = LlmMetrics(model)
    metrics.state(running=running, waiting=waiting, blocks_used=1, blocks=4)
    for reason in finished:
        metrics.request_finished(
            reason,
            prompt_tokens=2,
            completion_tokens=3,
            queue_s=0.0,
            first_token_s=0.02,
            total_s=1.0,
        )
    return metrics.samples()


def lines(text: str) -> dict[str, float]:
    """The value of each sample by its name and labels."""
    pairs = (line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#"))
    return {name: float(value) for name, value in pairs}
