"""Drafts of what comes next, by prompt lookup: what followed the same tokens the last time.

After Saxena's prompt lookup decoding (2023). A draft is only a guess: the model samples at each
of its tokens all the same, and those that differ are dropped.
"""

from __future__ import annotations

from collections import abc
from dataclasses import dataclass

CATCH_UP = 4096  # tokens indexed at once, so that a long prompt does not hold up the others
FIRST_LENGTH = 4
LONGEST_PAUSE = 128  # tokens


@dataclass(frozen=True, slots=True)
class Drafting:
    """How drafts are made: of at most ``tokens``, once the last ``ngram`` have come before."""

    tokens: int
    ngram: int = 3


class Lookup:
    """Where each run of ``ngram`` tokens of one sequence stood last; constant time a token."""

    def __init__(self, ngram: int) -> None:
        self._ngram = ngram
        self._behind: dict[tuple[int, ...], int] = {}  # a run, and the place behind its last one
        self._seen = 0
        self._match: int | None = None  # what stands there should come next

    def follow(self, tokens: abc.Sequence[int]) -> bool:
        """Reads what has come since the last time; whether it is now known what may come next."""
        end = min(len(tokens), self._seen + CATCH_UP)
        for place in range(self._seen, end):
            self._read(tokens, place)
        self._seen = end
        return self._match is not None and end == len(tokens)

    def guess(self, tokens: abc.Sequence[int], count: int) -> tuple[int, ...]:
        """``count`` tokens that followed before; where they reach the end they go round."""
        assert self._match is not None
        period = len(tokens) - self._match
        return tuple(tokens[self._match + i % period] for i in range(count))

    def _read(self, tokens: abc.Sequence[int], place: int) -> None:
        """A match goes on as long as it holds: so the longest one is kept, else the latest."""
        if self._match is not None:
            self._match = self._match + 1 if tokens[self._match] == tokens[place] else None
        if place + 1 < self._ngram:
            return
        run = tuple(tokens[place + 1 - self._ngram : place + 1])
        if self._match is None:
            self._match = self._behind.get(run)
        self._behind[run] = place + 1


class Speculation:
    """Drafts for one sequence: longer while they hold, and none for a while after they failed."""

    def __init__(self, drafting: Drafting) -> None:
        self._most = drafting.tokens
        self._length = min(FIRST_LENGTH, self._most)
        self._lookup = Lookup(drafting.ngram)
        self._failures = 0
        self._resume = 0  # when there are so many tokens

    def promises(self, tokens: abc.Sequence[int]) -> bool:
        """Whether there would be a draft after these tokens."""
        return self._lookup.follow(tokens) and len(tokens) >= self._resume

    def draft(self, tokens: abc.Sequence[int], most: int) -> tuple[int, ...]:
        """At most ``most`` tokens that may follow."""
        count = min(most, self._length)
        return self._lookup.guess(tokens, count) if count > 0 and self.promises(tokens) else ()

    def judge(self, drafted: int, accepted: int, length: int) -> None:
        """So many drafted tokens were right, for a sequence that had ``length`` tokens."""
        if accepted:
            self._failures = 0
            longer = max(self._length, 2 * drafted)
            self._length = min(longer if accepted == drafted else accepted + 1, self._most)
        else:
            self._failures += 1
            self._length = max(self._length // 2, 1)
            self._resume = length + min(4**self._failures, LONGEST_PAUSE)
