"""A clock that stands still until it is told."""

from __future__ import annotations

MINUTE = 30_000_000 * 60.0  # a minute's beginning


class Clock:
    """In seconds, as ``time.time``."""

    def __init__(self, now: float = MINUTE) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now

    def pass_by(self, seconds: float) -> None:
        self.now += seconds
