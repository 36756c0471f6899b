from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deployments.rates.use import MINUTE_S, Use

COUNTS = st.integers(0, 1000)


def later(use: Use, seconds: float) -> Use:
    """The same, nothing having been used since."""
    passed = use.elapsed_s + seconds
    while passed >= MINUTE_S:
        use, passed = use._replace(before=use.now, now=0), passed - MINUTE_S
    return use._replace(elapsed_s=passed)


def test_the_minute_before_fades() -> None:
    use = Use(limit=100, before=60, now=10, elapsed_s=15)
    assert use.used == 10 + 45
    assert (use.remaining, use.over) == (45, False)
    assert later(use, 45).used == 10
    assert later(use, 105).used == 0


def test_nothing_is_left_beyond_the_limit() -> None:
    use = Use(limit=10, before=0, now=25, elapsed_s=0)
    assert (use.remaining, use.over) == (0, True)


@given(st.integers(1, 1000), COUNTS, COUNTS, st.floats(0, 59.999), st.data())
def test_it_fits_when_the_wait_is_over_and_no_sooner(
    limit: int, before: int, now: int, elapsed_s: float, data: st.DataObject
) -> None:
    use = Use(limit, before, now, elapsed_s)
    cost = data.draw(st.integers(1, limit))
    wait_s = use.wait_s(cost)
    assert 0 <= wait_s <= 2 * MINUTE_S
    then = later(use, wait_s + 1e-6)
    assert not then._replace(now=then.now + cost).over
    if wait_s > 0.01:
        soon = later(use, wait_s - 0.01)
        assert soon._replace(now=soon.now + cost).over


@given(COUNTS, COUNTS, st.floats(0, 59.999))
def test_after_the_reset_nothing_is_used(before: int, now: int, elapsed_s: float) -> None:
    use = Use(10, before, now, elapsed_s)
    assert later(use, use.reset_s()).used == pytest.approx(0, abs=1e-6)
