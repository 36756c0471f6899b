"""A step model whose KV blocks hold token ids, so that a wrong block, slot or order shows.

Its next token is a hash of every token it reads back from the blocks: any token out of place
gives another answer than ``expected`` computes from the whole list.
"""

from __future__ import annotations

import threading
import time
from collections import abc
from dataclasses import dataclass, field

from models.schedule.sequence import Chunk, Scores
from models.step.model import Capacity

VOCABULARY = 97  # what it says; it understands one token more
CURSED = VOCABULARY


Says = abc.Callable[[abc.Sequence[int], int], int]  # tokens, seed: the next token


def next_token(tokens: abc.Sequence[int], seed: int) -> int:
    state = seed % 1_000_003
    for token in tokens:
        state = (state * 31 + token + 7) % 1_000_003
    return state % VOCABULARY


def echo(tokens: abc.Sequence[int], seed: int) -> int:
    """Mostly what stood five tokens before, so that what comes next can often be guessed."""
    other = next_token(tokens, seed)
    return other if other % 7 == 0 or len(tokens) < 5 else tokens[-5]


def expected(
    prompt: abc.Sequence[int], seed: int, count: int, says: Says = next_token
) -> list[int]:
    tokens = list(prompt)
    for _ in range(count):
        tokens.append(says(tokens, seed))
    return tokens[len(prompt) :]


def score(before: abc.Sequence[int], token: int) -> Scores:
    """As exact as the tokens: it depends on all that came before."""
    return Scores(-float(next_token([*before, token], 1)), 1 + token % 7)


@dataclass(frozen=True)
class Ready:
    values: list[int]
    scored: list[Scores] = field(default_factory=list)

    def tokens(self) -> list[int]:
        return self.values

    def scores(self) -> list[Scores]:
        return self.scored


@dataclass
class RecallModel:
    """``fail_on`` is a token whose computation raises; ``seconds`` a step takes at least."""

    capacity: Capacity
    launch_ahead: bool = False
    seconds: float = 0.0
    fail_on: int | None = None
    says: Says = next_token
    steps: int = 0
    batches: list[int] = field(default_factory=list)
    cells: dict[tuple[int, int], int] = field(default_factory=dict)
    last: dict[int, int] = field(default_factory=dict)
    threads: set[int] = field(default_factory=set)

    def launch(self, chunks: abc.Sequence[Chunk]) -> Ready:
        assert len({chunk.slot for chunk in chunks}) == len(chunks) <= self.capacity.slots
        self.steps += 1
        self.batches.append(len(chunks))
        self.threads.add(threading.get_ident())
        if self.seconds:
            time.sleep(self.seconds)
        inputs = [self._inputs(chunk) for chunk in chunks]
        if any(self.fail_on in tokens for tokens in inputs):
            raise RuntimeError("this token is cursed")
        for chunk, tokens in zip(chunks, inputs, strict=True):
            for position, token in enumerate(tokens, chunk.start):
                self.cells[self._cell(chunk, position)] = token
        parts = [part for chunk in chunks for part in chunk.parts]
        came = [(self._sample(part), list(self._scores(part))) for part in parts]
        sampled = [token for token, _ in came if token is not None]
        return Ready(sampled, [one for _, scores in came for one in scores])

    def release(self, slot: int) -> None:
        self.last.pop(slot, None)

    def reset(self) -> None:
        self.cells.clear()
        self.last.clear()

    def describe(self) -> dict[str, str]:
        return {"device": "none"}

    def _inputs(self, chunk: Chunk) -> list[int]:
        tokens = list(chunk.token_ids)
        if chunk.from_slot:
            tokens.append(self.last[chunk.slot])
        assert len(tokens) == chunk.count >= 1
        return tokens

    def _cell(self, chunk: Chunk, position: int) -> tuple[int, int]:
        size = self.capacity.block_size
        return chunk.blocks[position // size], position % size

    def _scores(self, chunk: Chunk) -> abc.Iterator[Scores]:
        for end, target in enumerate(chunk.targets, chunk.start + 1):
            yield score(self._held(chunk, end), target)
        if chunk.scores > len(chunk.targets):
            yield score(self._held(chunk, chunk.start + chunk.count), self.last[chunk.slot])

    def _held(self, chunk: Chunk, end: int) -> list[int]:
        return [self.cells[self._cell(chunk, position)] for position in range(end)]

    def _sample(self, chunk: Chunk) -> int | None:
        if not chunk.samples:
            return None
        tokens = self._held(chunk, chunk.start + chunk.count)
        self.last[chunk.slot] = self.says(tokens, chunk.sequence.seed)
        return self.last[chunk.slot]


def recall_model(
    *, blocks: int = 64, block_size: int = 4, slots: int = 8, max_context: int = 64, **rest: object
) -> RecallModel:
    capacity = Capacity(
        max_context=min(max_context, blocks * block_size),
        vocab_size=VOCABULARY + 1,
        slots=slots,
        blocks=blocks,
        block_size=block_size,
        prefix_cache=True,
        drafts=True,
    )
    return RecallModel(capacity, **rest)  # type: ignore[arg-type]
