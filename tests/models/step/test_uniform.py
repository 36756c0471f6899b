from __future__ import annotations

import random
from itertools import pairwise

from models.step.uniform import uniform


def test_the_stream_never_changes() -> None:
    """These numbers are part of what a seed means: another release must give the same text."""
    assert uniform(0, 0) == 0.6524484863740322
    assert uniform(42, 7) == 0.9929056469208896


def test_in_the_unit_interval_for_any_seed() -> None:
    draws = random.Random(0)
    for _ in range(1000):
        assert 0 <= uniform(draws.getrandbits(64), draws.getrandbits(20)) < 1


def test_even_and_unrelated_between_neighbours() -> None:
    for numbers in (
        [uniform(seed, 5) for seed in range(4000)],
        [uniform(5, position) for position in range(4000)],
        [uniform(position, position) for position in range(4000)],
    ):
        assert abs(sum(numbers) / 4000 - 0.5) < 0.02
        tenths = [sum(i / 10 <= n < (i + 1) / 10 for n in numbers) for i in range(10)]
        assert all(320 < count < 480 for count in tenths)
        pairs = pairwise(numbers)
        assert abs(sum((a - 0.5) * (b - 0.5) for a, b in pairs) / 4000) < 0.006
