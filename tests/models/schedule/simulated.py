"""A scheduler over a machine that takes simulated time."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

from models.request import SamplingParams
from models.schedule.blocks import BlockPool
from models.schedule.pace import Pace
from models.schedule.plan import Scheduler
from models.schedule.sequence import Chunk, Sequence
from models.schedule.step_time import Load, load_of


@dataclass
class Simulated:
    """Steps cost what their load does in seconds, give or take ``noise``."""

    step: float = 0.02
    row: float = 0.004
    token: float = 0.001
    pair: float = 0.0002
    noise: float = 0.0
    outliers: float = 0.0  # how often a step takes five times as long
    step_s: float | None = None
    step_tokens: int = 2048
    slots: int = 32
    blocks: int = 4096
    now: float = 0.0
    first: dict[Sequence, float] = field(default_factory=dict)  # when its first token came
    steps: list[tuple[Load, float]] = field(default_factory=list)
    done: list[Sequence] = field(default_factory=list)
    preempted: set[Sequence] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.scheduler = Scheduler(
            BlockPool(self.blocks, 16, False), self.slots, self.step_tokens, Pace(self.step_s)
        )
        self._chance = random.Random(0)

    def arrive(self, tokens: int, answer: int = 1, *, background: bool = False) -> Sequence:
        prompt = [self._chance.randrange(1000) for _ in range(tokens)]
        sequence = Sequence("s", prompt, SamplingParams(), frozenset(), tokens + answer, 0)
        sequence.background = background
        self.scheduler.add(sequence)
        return sequence

    def run(self, steps: int | None = None) -> None:
        """So many steps, or all that there are."""
        done = 0
        while self.scheduler.live and done != steps:
            held = [one for one in self.scheduler.live if one.slot is not None]
            chunks, _ = self.scheduler.plan()
            self.preempted |= {one for one in held if one.slot is None}
            assert chunks, "nobody makes progress"
            self._take(chunks)
            done += 1

    def _take(self, chunks: list[Chunk]) -> None:
        load = load_of(chunks)
        costs = (self.step, self.row, self.token, self.pair)
        seconds = sum(cost * part for cost, part in zip(costs, load.parts, strict=True))
        seconds *= 1 + self.noise * self._chance.uniform(-1, 1)
        seconds *= 5 if self._chance.random() < self.outliers else 1
        self.now += seconds
        self.steps.append((load, seconds))
        self.scheduler.took(chunks, seconds)
        for chunk in chunks:
            if chunk.samples:
                self._append(chunk.sequence)

    def _append(self, sequence: Sequence) -> None:
        sequence.pending -= 1
        sequence.tokens.append(1)
        self.first.setdefault(sequence, self.now)
        if len(sequence.tokens) >= sequence.max_length:
            self.scheduler.remove(sequence)
            self.done.append(sequence)
