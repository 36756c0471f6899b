from __future__ import annotations

import pytest

from tests.bench.figures import figures, gaps_after, percentile
from tests.bench.scenarios import Course
from tests.bench.sse import Stream


def stream(*arrivals: float, tokens: int | None = None, error: str = "") -> Stream:
    return Stream(0.5, list(arrivals), 10.0, tokens, 5, error)


def test_percentiles_are_values_of_the_list() -> None:
    values = [float(value) for value in range(1, 201)]
    assert percentile(values, 99) == 198
    assert percentile(values, 50) == 100
    assert percentile([3.0], 99) == 3
    assert percentile([], 99) is None


def test_figures_of_a_course() -> None:
    streams = [stream(1, 2, 3, tokens=6), stream(2, 5, 6)]
    found = figures(Course(streams, [], 0.0, 3.0), {"client": 0.9})
    assert found.tokens == 9  # one by its usage, the other by its pieces
    assert found.tokens_per_s == 3
    assert (found.first_ms, found.gap_ms, found.gap_p99_ms) == (1000, 1000, 3000)
    assert found.cost_us["client"] == pytest.approx(100_000)
    assert (found.worst_gap_ms, found.long_first_ms, found.prompt_tokens) == (None, None, 10)


def test_gaps_are_those_while_long_prompts_arrive() -> None:
    streams = [stream(1, 4, 6, 7), stream(1, 5.5, 9.5)]
    found = figures(Course(streams, [stream(8)], 0.0, 10.0, interrupted=5.0), {})
    assert gaps_after(streams[0], 5.0) == [2, 1]
    assert found.worst_gap_ms == 3250  # between 2 s and 4.5 s
    assert found.long_first_ms == 7500


def test_what_failed_is_counted_and_the_rest_too() -> None:
    found = figures(Course([stream(1, 2), stream(error="503")], [], 0.0, 1.0), {})
    assert (found.asked, found.failed, found.error, found.tokens) == (2, 1, "503", 2)


def test_nothing_answered_is_no_figure() -> None:
    found = figures(Course([stream(error="no")], [], 0.0, 1.0), {"client": 1.0})
    assert (found.first_ms, found.gap_ms, found.gap_p99_ms, found.tokens_per_s) == (
        None,
        None,
        None,
        0,
    )
