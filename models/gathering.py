"""The tokens of one request, handed on so many at a time: fewer and larger messages."""

from __future__ import annotations

from itertools import chain

from models.tokens import Tokens


class Gathering:
    """Holds back less than ``interval`` tokens of a choice; the first of each goes at once."""

    def __init__(self, interval: int, choices: int) -> None:
        self._interval = interval
        self._held: list[list[Tokens]] = [[] for _ in range(choices)]
        self._due = [1] * choices  # so many more tokens of a choice, and they all go

    def take(self, item: Tokens | Exception) -> list[Tokens | Exception]:
        """What is to go on now; all that is held goes before an error."""
        if isinstance(item, Exception):
            held = [choice for choice, some in enumerate(self._held) if some]
            return [*map(self._let_go, held), item]
        self._held[item.choice].append(item)
        self._due[item.choice] -= len(item.token_ids)
        if item.finish is None and self._due[item.choice] > 0:
            return []
        return [self._let_go(item.choice)]

    def _let_go(self, choice: int) -> Tokens:
        held, self._held[choice] = self._held[choice], []
        self._due[choice] = self._interval
        return Tokens(
            choice,
            tuple(chain.from_iterable(some.token_ids for some in held)),
            held[-1].finish,
            held[-1].stop_id,
            tuple(chain.from_iterable(some.scores for some in held)),
        )
