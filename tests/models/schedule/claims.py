"""Claims of users, and a replica whose steps take one tick each."""

from __future__ import annotations

import heapq
import itertools
import random
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from models.request import User
from models.schedule.shares import Claim, Shares

_arrivals = itertools.count()

Length = Callable[[random.Random], int]


def claim(key: str = "", name: str = "", tokens: int = 10, due: float | None = None) -> Claim:
    """One that waits for itself alone."""
    made = Claim(User(key, name), tokens, next(_arrivals) if due is None else due)
    made.fellows = [made]
    return made


def fixed(tokens: int) -> Length:
    """Answers all as long."""
    return lambda _: tokens


def varied(mean: float) -> Length:
    """Answers of all lengths, few of them long."""
    return lambda chance: 1 + int(chance.expovariate(1 / mean))


@dataclass
class Served:
    """What each user was served, in tokens, and how long each of its requests waited, in ticks."""

    tokens: Counter[User] = field(default_factory=Counter)
    waits: defaultdict[User, list[int]] = field(default_factory=lambda: defaultdict(list))


class Replica:
    """So many slots, and users who each have so many requests in the queue at any time."""

    def __init__(self, slots: int, users: Mapping[User, tuple[int, Length]]) -> None:
        self.shares: Shares[Claim] = Shares(256)
        self.served = Served()
        self.now = 0
        self._slots = slots
        self._users = users
        self._chance = random.Random(slots)
        self._arrived: dict[Claim, int] = {}
        self._running: list[tuple[int, int, Claim, int]] = []
        for user, (count, _) in users.items():
            for _ in range(count):
                self.arrive(user)

    def arrive(self, user: User) -> Claim:
        one = claim(*user, tokens=20)
        self._arrived[one] = self.now
        self.shares.push(one)
        self._fill()
        return one

    def run(self, ticks: int) -> Served:
        until = self.now + ticks
        while self._running and self._running[0][0] <= until:
            self.now, _, done, length = heapq.heappop(self._running)
            self.shares.settle(done, done.tokens + length)
            self.served.tokens[done.user] += done.tokens + length
            if done.user in self._users:
                self.arrive(done.user)
            self._fill()
        self.now = until
        return self.served

    def _fill(self) -> None:
        while self.shares.all.waiting and len(self._running) < self._slots:
            one = self.shares.pop()
            self.served.waits[one.user].append(self.now - self._arrived.pop(one))
            _, length = self._users.get(one.user, (0, fixed(100)))
            took = length(self._chance)
            heapq.heappush(self._running, (self.now + took, next(_arrivals), one, took))
