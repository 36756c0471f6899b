"""Who gives way when the queue is full: the last requests of whoever fills most of it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from models.request import BACKGROUND, User
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

    They are all the choices of requests that have not begun: of those in the background, and if
    these are not enough, of the user with most of the queue, within the key with most of it. Nobody
    gives way to who would then have more of it, unless in the background, nor to who is there.
    """
    yielding: list[C] = []
    freed = Demand(0, 0)
    for request in _behind(everybody, user):
        yielding += request
        freed += _sum(request)
        if (_demand(everybody) - freed + brings).fits(most):
            return yielding
    mine, rival = _apart(everybody, user, most)
    kept = _demand(rival)
    for request in _unbegun(rival, most):
        yielding += request
        freed += _sum(request)
        kept -= _sum(request)
        if (_demand(everybody) - freed + brings).fits(most):
            fair = (_demand(mine) + brings).share(most) <= kept.share(most)
            return yielding if fair else []
    return []


def _behind(everybody: Party[C], user: User) -> Iterator[list[C]]:
    """What has not begun in the background, of which others are in front."""
    if not user.background and BACKGROUND in everybody.members:
        for member in everybody.members[BACKGROUND].queued:
            yield from _requests(member)


def _sum(request: Sequence[C]) -> Demand:
    return Demand(len(request), sum(claim.tokens for claim in request))


def _apart(everybody: Party[C], user: User, most: Demand) -> tuple[Party[C], Party[C]]:
    """The user's key and the one with most of the queue; if they are one, the users within it."""
    background = everybody.members.get(BACKGROUND)
    rivals = [key for key in everybody.queued if (key is background) == user.background]
    mine, rival = everybody.members.get(user.key, Party()), _fullest(rivals, most)
    if mine is rival:
        mine, rival = mine.members.get(user.name, Party()), _fullest(mine.queued, most)
    return mine, rival


def _unbegun(party: Party[C], most: Demand) -> Iterator[list[C]]:
    """Requests of its fullest user none of whose choices has begun, the last one first."""
    while party.queued:
        party = _fullest(party.queued, most)
    yield from _requests(party)


def _requests(party: Party[C]) -> Iterator[list[C]]:
    for claim in reversed(party.claims):
        if claim.fellows[0] is claim and all(fellow.waits for fellow in claim.fellows):
            yield [one for one in party.claims if one.fellows is claim.fellows]


def _fullest(parties: Iterable[Party[C]], most: Demand) -> Party[C]:
    return max(parties, key=lambda party: _demand(party).share(most), default=Party())


def _demand(party: Party[C]) -> Demand:
    return Demand(party.waiting, party.waiting_tokens)
