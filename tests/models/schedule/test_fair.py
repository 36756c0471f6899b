from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from models.schedule.fair import SHORT, Input, next_batch


def inputs(*lengths: int, turn: int = 0) -> list[Input]:
    return [Input((1,) * length, turn + rank) for rank, length in enumerate(lengths)]


def lengths(batch: list[Input]) -> list[int]:
    return [one.length for one in batch]


def test_short_inputs_share_a_batch_up_to_the_limit() -> None:
    assert lengths(next_batch(inputs(*[5] * 10), 4 * SHORT)) == [5] * 4


def test_a_long_input_goes_alone() -> None:
    assert lengths(next_batch(inputs(500, 5, 5), 100)) == [500]


def test_what_would_be_mostly_padding_waits() -> None:
    assert lengths(next_batch(inputs(100, 40, 60, 5), 1000)) == [100, 60]


def test_the_padding_counts() -> None:
    assert lengths(next_batch(inputs(60, 100, 60), 250)) == [60, 100]


def test_a_small_request_has_its_turn_beside_a_large_one() -> None:
    large, small = inputs(*[20] * 100), inputs(20)
    assert small[0] in next_batch([*large, *small], 4 * 20)


def test_nothing_waits() -> None:
    assert next_batch([], 10) == []


waiting = st.lists(
    st.builds(lambda n, turn: Input((1,) * n, turn), st.integers(1, 300), st.integers(0, 9)),
    min_size=1,
)


@given(waiting, st.integers(1, 1000))
def test_a_batch_is_bounded_begins_with_the_next_turn_and_pads_at_most_to_twice(
    waiting: list[Input], most: int
) -> None:
    batch = next_batch(waiting, most)
    assert batch[0].turn == min(one.turn for one in waiting)
    sizes = [max(one.length, SHORT) for one in batch]
    assert len(batch) == 1 or max(sizes) * len(batch) <= most
    assert max(sizes) <= 2 * min(sizes)
