"""What one step computes: ``count = min(length - computed, budget)``, for every sequence.

Sequences that only need their next token come first, then running ones, then by arrival. Chunked
prefill, prefix hits, resumption after preemption and decoding are all this one line.
"""

from __future__ import annotations

from collections import abc

from models.schedule.blocks import BlockPool
from models.schedule.sequence import Chunk, Sequence

# Each takes a row of logits as wide as the vocabulary.
SCORED_TOKENS = 256


class Scheduler:
    """Live sequences in order of arrival, the blocks and the slots they hold."""

    def __init__(self, pool: BlockPool, slots: int, step_tokens: int) -> None:
        self.pool = pool
        self.step_tokens = step_tokens
        self.live: dict[Sequence, None] = {}
        self.preemptions = 0
        self._slots = list(range(slots - 1, -1, -1))

    def add(self, sequence: Sequence) -> None:
        self.live[sequence] = None

    def remove(self, sequence: Sequence) -> int | None:
        """Frees all that a sequence holds, for good; the slot it held, if any. Idempotent."""
        sequence.ended = True
        if sequence not in self.live:
            return None
        del self.live[sequence]
        return self._suspend(sequence)

    def reset(self, lost: abc.Collection[Sequence]) -> None:
        """After a failed step: ends ``lost``, and takes all others back to their beginning."""
        for sequence in lost:
            sequence.ended = True
            self.live.pop(sequence, None)
        for sequence in [*self.live, *lost]:
            self._suspend(sequence)
            sequence.pending = 0
        self.pool.reset()

    def plan(self) -> tuple[list[Chunk], list[int]]:
        """The next step's chunks, and the slots whose sequences were preempted for it."""
        preempted: list[int] = []
        running = [s for s in self.live if s.slot is not None and _may_go_on(s)]
        running = [s for s in running if self._room(s, preempted)]
        running = [s for s in running if s.slot is not None]
        running.sort(key=lambda s: s.length - s.computed > 1)
        budget = _Budget(self.step_tokens)
        for sequence in running:
            if budget.of(sequence):
                budget.spend(self._chunk(sequence, budget.of(sequence)))
        for sequence in [s for s in self.live if s.slot is None and s.ready]:
            if not budget.of(sequence) or not self._admit(sequence):
                break  # in order of arrival: nobody overtakes the one that does not fit
            budget.spend(self._chunk(sequence, budget.of(sequence), admitted=True))
        return budget.chunks, preempted

    def _room(self, sequence: Sequence, preempted: list[int]) -> bool:
        """Makes blocks for all tokens of a running sequence, at the cost of younger ones only."""
        if sequence.slot is None:
            return False  # preempted a moment ago, for an older one
        while not self.pool.grow(sequence, sequence.length):
            victim = next(s for s in reversed(self.live) if s.slot is not None)
            if victim is sequence:
                return False
            slot = self._suspend(victim)
            assert slot is not None
            preempted.append(slot)
            self.preemptions += 1
        return True

    def _admit(self, sequence: Sequence) -> bool:
        if sequence.pending or not self._slots or not self.pool.admit(sequence):
            return False
        sequence.slot = self._slots.pop()
        return True

    def _suspend(self, sequence: Sequence) -> int | None:
        self.pool.release(sequence)
        slot, sequence.slot = sequence.slot, None
        if slot is not None:
            self._slots.append(slot)
        return slot

    def _chunk(self, sequence: Sequence, budget: int, *, admitted: bool = False) -> Chunk:
        assert sequence.slot is not None
        start = sequence.computed
        end = min(sequence.length, start + budget)
        known = tuple(sequence.tokens[start:end])
        sequence.computed = end
        samples = end == sequence.length
        constraint = sequence.constraint if samples else None
        sequence.pending += samples
        self.pool.register(sequence)
        return Chunk(
            sequence=sequence,
            start=start,
            count=end - start,
            samples=samples,
            token_ids=known,
            from_slot=len(known) < end - start,
            slot=sequence.slot,
            blocks=tuple(sequence.blocks[: self.pool.needed(end)]),
            history=tuple(sequence.tokens[:end]) if admitted else None,
            ruling=constraint.ruling if constraint else None,
            targets=_targets(sequence, start, end),
            banned=sequence.banned() if samples else (),
        )


class _Budget:
    """What is left of a step, and the chunks that took the rest."""

    def __init__(self, tokens: int) -> None:
        self.chunks: list[Chunk] = []
        self._tokens = tokens
        self._scored = SCORED_TOKENS

    def of(self, sequence: Sequence) -> int:
        """Tokens that a sequence may compute."""
        return min(self._tokens, self._scored) if sequence.unscored else self._tokens

    def spend(self, chunk: Chunk) -> None:
        self.chunks.append(chunk)
        self._tokens -= chunk.count
        self._scored -= len(chunk.targets)


def _may_go_on(sequence: Sequence) -> bool:
    known = sequence.ready and not (sequence.pending and sequence.watched)
    return known and sequence.length < sequence.max_length


def _targets(sequence: Sequence, start: int, end: int) -> tuple[int, ...]:
    """The prompt's tokens behind inputs ``[start, end)``, as far as they are to be scored."""
    if not sequence.unscored:
        return ()
    return tuple(sequence.tokens[start + 1 : min(end + 1, sequence.prompt_length)])
