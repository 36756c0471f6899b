"""Who goes next of those who wait: keys have equal shares, and within a key its users, in tokens.

Start-time fair queueing over two levels. Each party counts the tokens that it was served, and of
those with somebody waiting the one with the least is next. Whoever begins to wait starts at the
virtual time, the count of whoever was chosen last: having been idle is worth nothing. That time
goes on at every choice, even if only newcomers are chosen, so everybody's turn comes. How long an
answer will be is not known when it begins: it is charged what its user's usually are, and the rest
is settled at its end. What is in the background is a key of its own, whose turn only comes when no
other key has somebody waiting.
"""

from __future__ import annotations

import bisect
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Generic, TypeVar

from models.request import BACKGROUND, User

LEARNED = 1 / 8  # of what is usual, from each answer
KNOWN = 64  # members that are remembered at least before any is forgotten


@dataclass(slots=True, eq=False)
class Claim:
    """One sequence that waits or runs. ``due`` is its rank among those of its user.

    ``tokens`` are those of its prompt, 0 for further choices over the same one. Of those choices
    ``fellows`` are all, the first one first.
    """

    user: User
    tokens: int
    due: float
    fellows: Sequence[Claim] = ()
    waits: bool = field(default=False, init=False)
    charged: float = field(default=0.0, init=False)


C = TypeVar("C", bound=Claim)


class Party(Generic[C]):
    """A user, a key, or all together: what it was served, and who waits in its name."""

    def __init__(self, usual: float = 0.0) -> None:
        self.served = 0.0  # tokens
        self.began = 0.0  # ``served`` when it last began to wait
        self.usual = usual  # tokens that a sequence of it takes beyond those of its prompt
        self.held = 0  # claims that wait or run
        self.waiting = 0
        self.waiting_tokens = 0
        self.claims: list[C] = []  # of a user: those that wait, by ``due``
        self.members: dict[str, Party[C]] = {}
        self.queued: dict[Party[C], None] = {}  # members with somebody waiting
        self._time = 0.0  # virtual, of its members
        self._room = KNOWN

    def member(self, name: str) -> Party[C]:
        """The party of this name within this one, a new one if need be."""
        if name not in self.members:
            if len(self.members) >= self._room:
                self._forget()
            self.members[name] = Party(self.usual)
        return self.members[name]

    def queue(self, member: Party[C]) -> None:
        """A member begins to wait."""
        member.served = member.began = max(member.served, self._time)
        self.queued[member] = None

    def choose(self) -> Party[C]:
        """The member whose turn it is; of equals the one that began to wait first."""
        background = self.members.get(BACKGROUND)
        return min(self.queued, key=lambda member: (member is background, member.served))

    def charge(self, member: Party[C], tokens: float, most: int) -> None:
        """The member's turn has come; there are never more than ``most`` who wait."""
        self._time = max(self._time + tokens / most, member.served)
        member.served += tokens

    def _forget(self) -> None:
        """Of members that hold nothing, those that would begin at the virtual time again."""
        self.members = {
            name: member
            for name, member in self.members.items()
            if member.held or member.served > self._time
        }
        self._room = max(KNOWN, 2 * len(self.members))


class Shares(Generic[C]):
    """All who wait or run, of whom never more than ``most`` wait."""

    def __init__(self, most: int) -> None:
        self.all: Party[C] = Party()
        self._most = max(1, most)

    def push(self, claim: C) -> None:
        """One more waits."""
        line = self._line(claim)
        for group, member in pairwise(line):
            if not member.waiting:
                group.queue(member)
        for party in line:
            party.held += 1
            party.waiting += 1
            party.waiting_tokens += claim.tokens
        claim.waits = True
        bisect.insort(line[-1].claims, claim, key=lambda waiting: waiting.due)

    def pop(self) -> C:
        """The next one waits no more, and is charged what it may take. Somebody must be waiting."""
        party = self.all
        while party.queued:
            party = party.choose()
        claim = party.claims[0]
        claim.charged = max(1.0, claim.tokens + party.usual)
        line = self._unqueue(claim)
        for group, member in pairwise(line):
            group.charge(member, claim.charged, self._most)
        return claim

    def settle(self, claim: C, tokens: int) -> None:
        """A claim that was popped has ended, having taken so many tokens; 0: before it began."""
        line = self._line(claim)
        for party in line:
            if tokens:
                party.usual += LEARNED * (tokens - claim.tokens - party.usual)
            owed = party.served + max(1, tokens) - claim.charged
            party.served = max(party.began, owed)  # what was forgiven is not paid back
        self._release(line)

    def remove(self, claim: C) -> None:
        """One that waits goes away."""
        self._release(self._unqueue(claim))

    def _line(self, claim: C) -> list[Party[C]]:
        """All, the claim's key and its user."""
        line = [self.all]
        for name in claim.user:
            line.append(line[-1].member(name))
        return line

    def _unqueue(self, claim: C) -> list[Party[C]]:
        line = self._line(claim)
        line[-1].claims.remove(claim)
        claim.waits = False
        for party in line:
            party.waiting -= 1
            party.waiting_tokens -= claim.tokens
        for group, member in pairwise(line):
            if not member.waiting:
                del group.queued[member]
        return line

    def _release(self, line: list[Party[C]]) -> None:
        for party in line:
            party.held -= 1
            if not party.held:
                party.members.clear()  # among themselves they begin anew
