from __future__ import annotations

import pytest

from deployments.exposition import Scrape, Scrapes, render
from deployments.rates.refusals import Refusals
from models.events import FinishReason
from models.metric_table import METRICS
from tests.deployments.exposed import lines, samples

STOP = FinishReason.STOP


def test_replicas_are_summed_and_models_are_kept_apart() -> None:
    replicas = (
        samples("a", running=1, finished=[STOP] * 2),
        samples("a", running=3, finished=[STOP] * 5),
    )
    seen = lines(
        render(
            {
                "a": Scrape(replicas, 2, 2),
                "b": Scrape((samples("b", running=0, finished=[STOP] * 1),), 1, 1),
            }
        )
    )
    assert seen['stepserve_requests_running{model="a"}'] == 4
    assert seen['stepserve_requests_finished_total{model="a",reason="stop"}'] == 7
    assert seen['stepserve_requests_finished_total{model="b",reason="stop"}'] == 1
    bucket = 'stepserve_time_to_first_token_seconds_bucket{le="0.02",model="a"}'
    assert seen[bucket] == 7
    assert seen['stepserve_time_to_first_token_seconds_sum{model="a"}'] == pytest.approx(0.14)


def test_a_silent_replica_is_visible_and_blanks_nothing() -> None:
    text = render({"a": Scrape((samples("a", running=1),), replicas=2, scraped=1)})
    seen = lines(text)
    assert seen['stepserve_replicas{model="a"}'] == 2
    assert seen['stepserve_replicas_scraped{model="a"}'] == 1
    assert seen['stepserve_requests_running{model="a"}'] == 1


def test_refusals_of_all_replicas_of_the_ingress_are_summed() -> None:
    one, other = Refusals(), Refusals()
    for refusals, kind in ((one, "tokens"), (other, "tokens"), (other, "requests")):
        refusals.note("ann", kind)
    one.uncounted = 2
    seen = lines(render({}, Scrape((one.samples(), other.samples()), 2, 2)))
    assert seen['stepserve_requests_limited_total{key="ann",kind="tokens"}'] == 2
    assert seen['stepserve_requests_limited_total{key="ann",kind="requests"}'] == 1
    assert seen["stepserve_requests_uncounted_total"] == 2
    assert "limited" not in render({})


def test_all_metrics_are_typed_even_without_any_answer() -> None:
    text = render({"a": Scrape((), 0, 0)})
    for metric in METRICS:
        assert f"# TYPE {metric.name} {metric.kind.value}" in text


def test_a_late_replica_counts_as_before_and_a_gone_one_no_more() -> None:
    scrapes = Scrapes()
    one, two = (
        samples("a", running=1, finished=[STOP] * 2),
        samples("a", running=1, finished=[STOP] * 3),
    )
    assert scrapes.take([("one", one), ("two", two)]) == Scrape((one, two), 2, 2)
    assert scrapes.take([("one", one), None]) == Scrape((two, one), 2, 1)
    assert scrapes.take([("one", one)]) == Scrape((one,), 1, 1)
    assert scrapes.take([]) == Scrape((), 0, 0)
