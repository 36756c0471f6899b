from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator

import pytest

from models.keeping import keeping


class Thing:
    pass


@pytest.fixture(autouse=True)
def _thawed() -> Iterator[None]:
    gc.unfreeze()
    yield
    gc.unfreeze()


def test_what_is_made_inside_is_never_looked_through_again() -> None:
    with keeping():
        inside = Thing()
    outside = Thing()
    tracked = {id(one) for one in gc.get_objects()}
    assert id(inside) not in tracked
    assert id(outside) in tracked


def test_nothing_is_collected_inside_and_all_else_is_behind_it() -> None:
    with keeping():
        assert not gc.isenabled()
    assert gc.isenabled()
    cycle = Thing()
    cycle.itself = cycle  # type: ignore[attr-defined]
    gone = weakref.ref(cycle)
    del cycle
    gc.collect()
    assert gone() is None


def test_what_is_there_at_a_second_end_may_still_go() -> None:
    with keeping():
        pass
    cycle = Thing()
    cycle.itself = cycle  # type: ignore[attr-defined]
    gone = weakref.ref(cycle)
    with keeping():
        pass
    del cycle
    gc.collect()
    assert gone() is None


def test_who_collects_nothing_still_does_not_behind_it() -> None:
    gc.disable()
    try:
        with pytest.raises(ImportError), keeping():
            raise ImportError
        assert not gc.isenabled()
    finally:
        gc.enable()
