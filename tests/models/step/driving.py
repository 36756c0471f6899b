"""Drives a StepModel as a scheduler might, but at random: what is planned when must not matter."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

from models.request import SamplingParams
from models.schedule.sequence import Chunk, Sequence
from models.step.model import StepModel


@dataclass
class Driver:
    """Feeds sequences in random chunks; ``preempt`` and ``from_slot`` are chances a step."""

    model: StepModel
    seed: int = 0
    most: int = 7  # tokens of one chunk
    preempt: float = 0.0
    from_slot: float = 0.0
    steps: int = 0
    _free_blocks: list[int] = field(init=False)
    _free_slots: list[int] = field(init=False)

    def __post_init__(self) -> None:
        self._random = random.Random(self.seed)
        capacity = self.model.capacity
        self._free_blocks = list(range(capacity.blocks))
        self._free_slots = list(range(capacity.slots))
        self._random.shuffle(self._free_blocks)
        self._random.shuffle(self._free_slots)

    def run(self, sequences: list[Sequence], new_tokens: int) -> list[list[int]]:
        """Steps until each sequence has ``new_tokens`` more; returns those."""
        while live := [s for s in sequences if s.generated < new_tokens]:
            self._maybe_preempt(live)
            self.step(self._random.sample(live, self._random.randint(1, len(live))))
            for sequence in live:
                if sequence.generated == new_tokens:
                    self.free(sequence)
        return [s.tokens[s.prompt_length :] for s in sequences]

    def step(self, sequences: list[Sequence]) -> None:
        chunks = [self.chunk(sequence) for sequence in sequences]
        tokens = self.model.launch(chunks).tokens()
        self.steps += 1
        sampled = [chunk.sequence for chunk in chunks if chunk.samples]
        assert len(tokens) == len(sampled)
        for sequence, token in zip(sampled, tokens, strict=True):
            sequence.tokens.append(token)

    def chunk(self, sequence: Sequence) -> Chunk:
        admitted = sequence.slot is None
        if sequence.slot is None:
            sequence.slot = self._free_slots.pop()
        start = sequence.computed
        count = min(self._random.randint(1, self.most), sequence.length - start)
        end = start + count
        self._grow(sequence, end)
        resident = end == sequence.length and sequence.generated > 0 and not admitted
        from_slot = resident and self._random.random() < self.from_slot
        sequence.computed = end
        return Chunk(
            sequence=sequence,
            start=start,
            count=count,
            samples=end == sequence.length,
            token_ids=tuple(sequence.tokens[start : end - from_slot]),
            from_slot=from_slot,
            slot=sequence.slot,
            blocks=tuple(sequence.blocks),
            history=tuple(sequence.tokens[:end]) if admitted else None,
        )

    def free(self, sequence: Sequence) -> None:
        assert sequence.slot is not None
        self.model.release(sequence.slot)
        self._free_slots.append(sequence.slot)
        self._free_blocks += sequence.blocks
        self._random.shuffle(self._free_blocks)
        sequence.slot, sequence.blocks, sequence.computed = None, [], 0

    def _grow(self, sequence: Sequence, end: int) -> None:
        while len(sequence.blocks) * self.model.capacity.block_size < end:
            sequence.blocks.append(self._free_blocks.pop())

    def _maybe_preempt(self, live: list[Sequence]) -> None:
        if self._random.random() < self.preempt:
            victim = self._random.choice(live)
            if victim.slot is not None:
                self.free(victim)


def sequence(
    tokens: list[int],
    sampling: SamplingParams | None = None,
    *,
    seed: int = 0,
    stop_ids: frozenset[int] = frozenset(),
    adapter: str | None = None,
) -> Sequence:
    """A sequence of these prompt tokens; greedy unless told otherwise."""
    return Sequence(
        id="test",
        tokens=list(tokens),
        sampling=sampling or SamplingParams(temperature=0),
        stop_ids=stop_ids,
        max_length=10**6,
        seed=seed,
        adapter=adapter,
    )
