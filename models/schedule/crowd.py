"""Who gives way when the queue is full: the last requests of whoever fills most of it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from models.request import User
from models.schedule.shares import C, Party


@dataclass(frozen=True, slots=True)
class Demand:
    """Of places in a queue: sequences, and tokens of their prompts; or the most that it meets."""

    sequences: int
    tokens: int

    def __add__(self, other: Demand) -> Demand:
        return Demand(self.sequences + other.sequences, self.tokens + other.tokens)

    def __sub__(self, other: Demand) -> Demand:
        return Demand(self.sequences - other.sequences, self.tokens - other.tokens)

    def fits(self, most: Demand) -> bool:
        """Whether it is no more than that in both."""
        return self.sequences <= most.sequences and self.tokens <= most.tokens

    def share(self, most: Demand) -> float:
        """What part of a queue it fills, by what it fills more of."""
        return max(self.sequences / max(1, most.sequences), self.tokens / max(1, most.tokens))


def who_yields(everybody: Party[C], user: User, brings: Demand, most: Demand) -> Sequence[C]:
    """Those whose refusal makes room for what a user brings; none where it is to be refused itself.

    They are all the choices of requests that have not begun, of the user with most of the queue,
    within the key with most of it. Nobody gives way to who would then have more of it.
    """
    if not everybody.waiting:
        return []
    mine, rival = _apart(everybody, user, most)
    yielding: list[C] = []
    freed = Demand(0, 0)
    for request in _unbegun(rival, most):
        yielding += request
        freed += Demand(len(request), sum(claim.tokens for claim in request))
        if (_demand(everybody) - freed + brings).fits(most):
            fair = (_demand(mine) + brings).share(most) <= (_demand(rival) - freed).share(most)
            return yielding if fair else []
    return []


def _apart(everybody: Party[C], user: User, most: Demand) -> tuple[Party[C], Party[C]]:
    """The user's key and the one with most of the queue; if they are one, the users within it."""
    mine = rival = everybody
    for name in user:
        mine, rival = mine.members.get(name, Party()), _fullest(rival, most)
        if mine is not rival:
            break
    return mine, rival


def _unbegun(party: Party[C], most: Demand) -> Iterator[list[C]]:
    """Requests of its fullest user none of whose choices has begun, the last one first."""
    while party.queued:
        party = _fullest(party, most)
    for claim in reversed(party.claims):
        if claim.fellows[0] is claim and all(fellow.waits for fellow in claim.fellows):
            yield [one for one in party.claims if one.fellows is claim.fellows]


def _fullest(party: Party[C], most: Demand) -> Party[C]:
    return max(party.queued, key=lambda member: _demand(member).share(most))


def _demand(party: Party[C]) -> Demand:
    return Demand(party.waiting, party.waiting_tokens)
