"""What one step computes: ``count = min(length - computed, budget)``, for every sequence.

Sequences that only need their next token come first, then those that are due first. Chunked
prefill, prefix hits, resumption after preemption and decoding are all this one line.
"""

from __future__ import annotations

from collections import abc

from models.schedule.blocks import BlockPool
from models.schedule.budget import Budget
from models.schedule.lookup import Drafting, Speculation
from models.schedule.pace import Pace
from models.schedule.sequence import Chunk, Sequence
from models.schedule.step_time import load_of
from models.schedule.work import Work


class Scheduler:
    """Live sequences in order of arrival, the blocks and the slots they hold.

    A prompt is due when as many tokens of prompts were computed after it came as it has itself: so
    a short one overtakes a long one, but what comes later than that overtakes nobody. Those in the
    background give way to all others, whenever they came.
    """

    def __init__(
        self,
        pool: BlockPool,
        slots: int,
        step_tokens: int,
        pace: Pace | None = None,
        drafting: Drafting | None = None,
    ) -> None:
        self.pool = pool
        self.step_tokens = step_tokens
        self.pace = pace or Pace()
        self.work = Work(self.pace.time)
        self._drafting = drafting
        self.live: dict[Sequence, None] = {}
        self._slots = list(range(slots - 1, -1, -1))
        self._prompt_tokens = 0  # computed so far
        self._lacking = False  # whether the last plan had no blocks for one that is to begin

    def add(self, sequence: Sequence) -> None:
        sequence.due = self._prompt_tokens + sequence.prompt_length
        if self._drafting and sequence.foreseeable:
            sequence.speculation = Speculation(self._drafting)
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
            sequence.pending, sequence.drafted = 0, False
        self.pool.reset()

    def plan(self) -> tuple[list[Chunk], list[int]]:
        """The next step's chunks, and the slots whose sequences were preempted for it."""
        preempted: list[int] = []
        if self._lacking:
            self._give_way(preempted)
        decoding = any(s.slot is not None and s.length > s.prompt_length for s in self.live)
        running = [s for s in self.live if s.slot is not None and _may_go_on(s)]
        running = [s for s in running if self._room(s, preempted)]
        if preempted:
            running = [s for s in running if s.slot is not None]
        budget = Budget(self.pace, self.step_tokens, decoding=decoding)
        decode = [s for s in running if s.decodes]
        self._decode(decode, budget)
        if len(decode) < len(self.live):
            self._read_prompts(running, budget)
        self._prompt_tokens += budget.prompt_tokens
        return budget.chunks, preempted

    def took(self, chunks: abc.Iterable[Chunk], seconds: float) -> None:
        """How long the step over ``chunks`` was: later ones are planned by it."""
        load = load_of(chunks)
        self.pace.time.observe(load, seconds)
        self.work.did(load)

    def verified(self, chunk: Chunk, accepted: int) -> None:
        """So many tokens of the chunk's draft were right, and become the sequence's own."""
        sequence = chunk.sequence
        sequence.drafted = False
        if sequence.slot is not None:  # not preempted since
            sequence.computed += accepted
        if sequence.speculation:
            sequence.speculation.judge(len(chunk.draft), accepted, len(sequence.tokens) + accepted)

    @property
    def prompt_budget(self) -> int:
        """Tokens of a prompt that the next step may compute beside those who decode."""
        rows = sum(s.decodes for s in self.live)
        return min(self.pace.beside(rows), self.step_tokens)

    def _decode(self, sequences: abc.Sequence[Sequence], budget: Budget) -> None:
        drafts = budget.drafts(len(sequences)) if self._drafting else 0
        for sequence in sequences:
            if budget.of(sequence):
                draft = self._draft(sequence, drafts)
                drafts -= len(draft)
                budget.spend(self._chunk(sequence, 1, draft=draft))

    def _draft(self, sequence: Sequence, most: int) -> tuple[int, ...]:
        """What may follow, if there are blocks for it that nobody holds."""
        if sequence.speculation is None or sequence.pending:
            return ()
        most = min(most, sequence.max_length - sequence.length - 1, sequence.room - 1)
        draft = sequence.speculation.draft(sequence.tokens, most)
        return draft if self.pool.grow(sequence, sequence.length + len(draft)) else ()

    def _read_prompts(self, running: abc.Iterable[Sequence], budget: Budget) -> None:
        """Those of running sequences and of waiting ones together, as they are due."""
        waiting = [s for s in self.live if s.slot is None and s.ready]
        prompts = [*(s for s in running if not s.decodes), *waiting]
        full = False
        for sequence in sorted(prompts, key=lambda s: (s.background, s.due)):
            if sequence.slot is not None:
                self._compute(sequence, budget)
            elif not full:  # nobody overtakes the one that does not fit
                full = not self._enter(sequence, budget)

    def _compute(self, sequence: Sequence, budget: Budget) -> None:
        if tokens := budget.of(sequence):
            budget.spend(self._chunk(sequence, tokens))

    def _enter(self, sequence: Sequence, budget: Budget) -> bool:
        """Admits a sequence and computes the first tokens that it does not find in the cache."""
        tokens = budget.of(sequence)
        if not tokens or not self._admit(sequence):
            return False
        budget.spend(self._chunk(sequence, tokens, admitted=True))
        return True

    def _room(self, sequence: Sequence, preempted: list[int]) -> bool:
        """Makes blocks for all tokens of a running sequence, at the cost of younger ones only.

        Any in the background counts as younger than those that are not.
        """
        if sequence.slot is None:
            return False  # preempted a moment ago, for an older one
        while not self.pool.grow(sequence, sequence.length):
            holding = (s for s in reversed(self.live) if s.slot is not None)
            victim = max(holding, key=lambda s: s.background)  # of equals the first: the youngest
            if victim is sequence:
                return False
            slot = self._suspend(victim)
            assert slot is not None
            preempted.append(slot)
        return True

    def _give_way(self, preempted: list[int]) -> None:
        """The youngest in the background loses its blocks to who is not."""
        self._lacking = False
        for sequence in reversed(self.live):
            if sequence.background and (slot := self._suspend(sequence)) is not None:
                preempted.append(slot)
                return

    def _admit(self, sequence: Sequence) -> bool:
        if sequence.pending or not self._slots:
            return False
        if not self.pool.admit(sequence):
            self._lacking = not sequence.background
            return False
        sequence.slot = self._slots.pop()
        return True

    def _suspend(self, sequence: Sequence) -> int | None:
        self.pool.release(sequence)
        slot, sequence.slot = sequence.slot, None
        if slot is not None:
            self._slots.append(slot)
        return slot

    def _chunk(
        self,
        sequence: Sequence,
        budget: int,
        *,
        admitted: bool = False,
        draft: tuple[int, ...] = (),
    ) -> Chunk:
        assert sequence.slot is not None
        start, length = sequence.computed, sequence.length
        end = min(length, start + budget)
        known = tuple(sequence.tokens[start:end])
        sequence.computed = end
        samples = end == length
        constraint = sequence.constraint if samples else None
        sequence.pending += samples
        sequence.drafted = bool(draft)
        self.pool.register(sequence)
        return Chunk(
            sequence=sequence,
            start=start,
            count=end - start + len(draft),
            samples=samples,
            token_ids=known + draft,
            from_slot=len(known) < end - start,
            slot=sequence.slot,
            blocks=tuple(sequence.blocks[: self.pool.needed(end + len(draft))]),
            history=tuple(sequence.tokens[:end]) if admitted else None,
            ruling=constraint.ruling if constraint else None,
            targets=_targets(sequence, start, end) if sequence.scores_prompt else (),
            banned=sequence.banned() if samples else (),
            forced=sequence.forced() if samples else None,
            draft=draft,
        )


def _may_go_on(sequence: Sequence) -> bool:
    known = sequence.ready and not (sequence.pending and _awaited(sequence))
    return known and sequence.length < sequence.max_length


def _awaited(sequence: Sequence) -> bool:
    """Whether its last tokens must be read before more is planned, or at least should be."""
    speculation = sequence.speculation
    promising = speculation is not None and speculation.promises(sequence.tokens)
    return sequence.drafted or sequence.watched or promising


def _targets(sequence: Sequence, start: int, end: int) -> tuple[int, ...]:
    """The prompt's tokens behind inputs ``[start, end)``, as far as they are to be scored."""
    if not sequence.unscored:
        return ()
    return tuple(sequence.tokens[start + 1 : min(end + 1, sequence.prompt_length)])
