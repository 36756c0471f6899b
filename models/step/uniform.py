"""One random number for (seed, position), the same on every machine and in every batch."""

from __future__ import annotations

MASK = 2**64 - 1
GOLDEN = 0x9E3779B97F4A7C15


def uniform(seed: int, position: int) -> float:
    """In [0, 1), a multiple of 2**-53, for the token at ``position`` of a sequence with ``seed``.

    Two rounds of splitmix64 (Steele, Lea and Flood, 2014), so that neighbouring seeds and
    neighbouring positions give unrelated streams.
    """
    return (_mix((_mix(seed & MASK) + position) & MASK) >> 11) * 2.0**-53


def _mix(state: int) -> int:
    state = (state + GOLDEN) & MASK
    state = ((state ^ (state >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    state = ((state ^ (state >> 27)) * 0x94D049BB133111EB) & MASK
    return state ^ (state >> 31)
