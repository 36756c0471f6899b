"""Which inputs share the next batch: everybody gets a turn, and padding stays small.

Fairness is by rounds (start-time fair queueing, with one input as the unit of service): the k-th
waiting input of a request takes part in the k-th round from its arrival, however many inputs
another request has brought.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

SHORT = 16  # tokens; shorter inputs cost about as much


@dataclass(frozen=True, slots=True, eq=False)
class Input:
    """One input to embed. ``turn`` is its round; ``dimensions=None`` are all."""

    token_ids: tuple[int, ...]
    turn: int = 0
    dimensions: int | None = None

    @property
    def length(self) -> int:
        return len(self.token_ids)


def next_batch(waiting: Iterable[Input], most_tokens: int) -> list[Input]:
    """The input whose turn it is, and those behind it that pad little and fit.

    Padded to its longest, the batch has at most ``most_tokens``, unless it is one long input; no
    input is padded to more than twice its length, or than ``SHORT``.
    """
    batch: list[Input] = []
    low = high = 0
    for one in sorted(waiting, key=lambda one: one.turn):
        size = max(one.length, SHORT)
        lowest, highest = (min(low, size), max(high, size)) if batch else (size, size)
        fits = highest * (len(batch) + 1) <= most_tokens and highest <= 2 * lowest
        if fits or not batch:
            batch.append(one)
            low, high = lowest, highest
    return batch
