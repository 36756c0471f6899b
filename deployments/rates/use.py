"""How much of a limit is used, from the counts of two minutes.

A minute slides: what was counted in the one before fades evenly while this one passes.
"""

from __future__ import annotations

from math import floor
from typing import NamedTuple

MINUTE_S = 60
EXACT = 1e-9  # what sums of fractions may be off by


class Use(NamedTuple):
    """A limit, what was counted before and in this minute, and how much of it is over."""

    limit: int
    before: int
    now: int
    elapsed_s: float

    @property
    def used(self) -> float:
        """At this moment."""
        return self.now + self.before * (1 - self.elapsed_s / MINUTE_S)

    @property
    def remaining(self) -> int:
        """What may still be used at this moment."""
        return max(0, floor(self.limit - self.used + EXACT))

    @property
    def over(self) -> bool:
        """Whether more is used than may be."""
        return self.used > self.limit + EXACT

    def wait_s(self, cost: int) -> float:
        """Until ``cost``, at most the limit, fits beside what is used, if nothing more is."""
        if self.used + cost <= self.limit + EXACT:
            return 0.0
        beside = self.limit - cost
        if beside >= self.now:  # enough of the minute before fades within this one
            return MINUTE_S * (1 - (beside - self.now) / self.before) - self.elapsed_s
        return MINUTE_S - self.elapsed_s + MINUTE_S * (1 - beside / self.now)

    def reset_s(self) -> float:
        """Until nothing is used, if nothing more is."""
        if self.now > 0:
            return 2 * MINUTE_S - self.elapsed_s
        return MINUTE_S - self.elapsed_s if self.before > 0 else 0.0
