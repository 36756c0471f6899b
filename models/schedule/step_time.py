"""How long a step takes, learned from those before it. Standard library only, and no clock.

Seconds are fixed + rows + tokens + pairs, each times a cost that may drift: a Kalman filter whose
noise is relative, so that it works alike for steps of a millisecond and of a second.
"""

from __future__ import annotations

from collections import abc
from dataclasses import dataclass
from math import sqrt

from models.schedule.sequence import Chunk

NOISE = 0.1  # of one step's time, relative
DRIFT = 0.03  # of each cost from step to step, relative
DOUBT = 2.0  # most uncertainty of a cost, relative
OUTLIER = 3.0  # standard deviations

Four = tuple[float, float, float, float]


@dataclass(slots=True)
class Load:
    """What a step computes, as far as its time depends on it."""

    rows: int = 0  # sequences that decode
    tokens: int = 0  # of prompts, and drafted ones
    pairs: float = 0.0  # thousands of those tokens with ones before them, in the same sequence

    def add(self, chunk: Chunk) -> None:
        """One chunk more."""
        if chunk.decodes:
            guessed = len(chunk.draft)
            self.rows += 1
            self.tokens += guessed
            self.pairs += guessed * chunk.start / 1000
        else:
            self.tokens += chunk.count
            self.pairs += chunk.count * (chunk.start + chunk.count / 2) / 1000

    @property
    def parts(self) -> Four:
        return 1.0, float(self.rows), float(self.tokens), self.pairs


def load_of(chunks: abc.Iterable[Chunk]) -> Load:
    load = Load()
    for chunk in chunks:
        load.add(chunk)
    return load


class StepTime:
    """Estimates the time of a step; ``known`` once a first one has been observed."""

    def __init__(self) -> None:
        self._costs: list[float] = []
        self._least: list[float] = []
        self._spread: list[list[float]] = []  # the covariance of the costs
        self._surprises = 0  # outliers in a row, negative ones downwards

    @property
    def known(self) -> bool:
        return bool(self._costs)

    def observe(self, load: Load, seconds: float) -> None:
        """A step with this load took so long."""
        if not self._costs:
            self._begin(load, seconds)
            return
        parts = load.parts
        sway = [_dot(row, parts) for row in self._spread]
        expected = _dot(self._costs, parts)
        variance = _dot(sway, parts) + (NOISE * expected) ** 2
        error = self._clipped(seconds - expected, OUTLIER * sqrt(variance))
        for i, (own, row) in enumerate(zip(sway, self._spread, strict=True)):
            self._costs[i] = max(self._costs[i] + own / variance * error, self._least[i])
            row[:] = [old - own * other / variance for old, other in zip(row, sway, strict=True)]
        self._drift()

    def predict(self, load: Load) -> float:
        """Seconds that a step with this load should take; 0 as long as nothing is known."""
        return _dot(self._costs, load.parts) if self._costs else 0.0

    def fitting(self, seconds: float, start: int) -> int:
        """Tokens of a prompt, from position ``start`` on, that add at most ``seconds``."""
        if seconds <= 0:
            return 0
        _, _, token, pair = self._costs
        token, bend = token + pair * start / 1000, pair / 1000  # token·n + bend·n²/2 = seconds
        return int(2 * seconds / (token + sqrt(token * token + 2 * bend * seconds)))

    def _begin(self, load: Load, seconds: float) -> None:
        """Half of the time for the step as such, half for its tokens; all of that is doubtful."""
        seconds = max(seconds, 1e-9)
        token = seconds / 2 / max(load.rows + load.tokens, 1)
        self._costs = [seconds / 2, token, token, token / 8]
        self._least = [cost / 200 for cost in self._costs]
        self._spread = [[0.0] * len(self._costs) for _ in self._costs]
        for i, cost in enumerate(self._costs):
            self._spread[i][i] = (DOUBT * cost) ** 2

    def _clipped(self, error: float, most: float) -> float:
        """An outlier counts as ``most``; one after another on the same side are a change."""
        if abs(error) <= most:
            self._surprises = 0
            return error
        side = 1 if error > 0 else -1
        self._surprises = side * (abs(self._surprises) + 1 if self._surprises * side > 0 else 1)
        if abs(self._surprises) > 1:
            self._spread = [[4 * value for value in row] for row in self._spread]
        return side * most

    def _drift(self) -> None:
        for i, cost in enumerate(self._costs):
            self._spread[i][i] = max(self._spread[i][i], 0.0) + (DRIFT * cost) ** 2
            limit = (DOUBT * cost) ** 2
            if (spread := self._spread[i][i]) > limit:
                shrink = sqrt(limit / spread)
                for j in range(len(self._costs)):
                    self._spread[i][j] *= shrink
                    self._spread[j][i] *= shrink


def _dot(left: list[float], right: Four) -> float:
    a, b, c, d = left
    return a * right[0] + b * right[1] + c * right[2] + d * right[3]
