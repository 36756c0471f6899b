"""What steps have computed, in seconds of full steps. Standard library only, and no clock.

A replica that answers a single sequence is as busy by the clock as one that answers as many as it
may, which does many times as much. Counted is what its share of a full step would take.
"""

from __future__ import annotations

from models.schedule.step_time import Load, StepTime

MEMORY = 0.99  # of one call of ``take`` to the next


class Work:
    """Told of each step; a step is full when ``full`` sequences decode in it."""

    def __init__(self, time: StepTime) -> None:
        self._time = time
        self._load = Load()  # since it was last taken
        self._seconds = 0.0  # lately
        self._requests = 0.0  # that ended lately

    def did(self, load: Load) -> None:
        """A step more."""
        self._load.rows += load.rows
        self._load.tokens += load.tokens
        self._load.pairs += load.pairs

    def take(self, full: int, ended: int) -> float:
        """Seconds of what was computed since the last call, while so many requests ended."""
        load, self._load = self._load, Load()
        seconds = self._price(load, full)
        self._seconds = MEMORY * self._seconds + seconds
        self._requests = MEMORY * self._requests + ended
        return seconds

    def usual(self, running: int) -> float:
        """Seconds of a request as they were lately; those that run are half done on average."""
        requests = self._requests + running / 2
        return self._seconds / requests if requests else 0.0

    def _price(self, load: Load, full: int) -> float:
        step = self._time.predict(Load(full))
        prompts = self._time.predict(Load(full, load.tokens, load.pairs)) - step
        return load.rows * step / full + prompts
