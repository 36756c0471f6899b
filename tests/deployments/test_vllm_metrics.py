from __future__ import annotations

import pytest

from deployments.exposition import Scrape, render
from deployments.vllm_metrics import NAMES
from models.events import FinishReason
from tests.deployments.exposed import lines, samples


def scrapes(*reasons: FinishReason) -> dict[str, Scrape]:
    replica = samples("a", running=3, waiting=2, finished=reasons)
    return {"a": Scrape((replica, replica), 2, 2)}


def test_only_who_asks_gets_the_other_names() -> None:
    known = scrapes(FinishReason.STOP)
    own, both = lines(render(known)), lines(render(known, vllm_names=True))
    assert not [name for name in own if name.startswith("vllm:")]
    assert own.items() <= both.items()


def test_they_have_the_same_values_with_other_labels() -> None:
    seen = lines(render(scrapes(FinishReason.STOP), vllm_names=True))
    of = '{engine="0",model_name="a"}'
    assert seen[f"vllm:num_requests_running{of}"] == 6
    assert seen[f"vllm:num_requests_waiting{of}"] == 4
    assert seen[f"vllm:request_generation_tokens_sum{of}"] == 6
    assert seen[f"vllm:e2e_request_latency_seconds_sum{of}"] == pytest.approx(2.0)
    bucket = 'vllm:time_to_first_token_seconds_bucket{engine="0",le="0.02",model_name="a"}'
    assert seen[bucket] == 2


def test_the_pool_is_a_part_of_one() -> None:
    seen = lines(render(scrapes(), vllm_names=True))
    assert seen['vllm:kv_cache_usage_perc{engine="0",model_name="a"}'] == 0.25
    assert lines(render({"a": Scrape((), 1, 0)}, vllm_names=True))


def test_reasons_that_it_does_not_know_are_among_those_it_knows() -> None:
    ended = FinishReason.STOP, FinishReason.TOOL_CALLS, FinishReason.CANCELLED, FinishReason.LENGTH
    seen = lines(render(scrapes(*ended), vllm_names=True))
    counts = {
        reason: seen[
            f'vllm:request_success_total{{engine="0",finished_reason="{reason}",model_name="a"}}'
        ]
        for reason in ("stop", "abort", "length")
    }
    assert counts == {"stop": 4, "abort": 2, "length": 2}


def test_each_is_typed_by_its_name() -> None:
    text = render(scrapes(), vllm_names=True)
    for metric, name in NAMES.items():
        assert f"# TYPE {name} {metric.kind.value}" in text
