"""How much a replica takes on: who runs, who waits, who is turned away. Loop-bound, no locks.

Users take turns, by what they were served. Of one user those who wait are ordered by arrival plus
one second for each unit of ``priority``: a lower value goes first, equals keep their order, and
nobody is overtaken by what arrives later than the difference of the two priorities in seconds. So
with bounded priorities nobody starves. Between users ``priority`` means nothing.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections import deque
from dataclasses import dataclass, field

from models.errors import Busy
from models.request import ANYBODY, User
from models.schedule.crowd import Demand, who_yields
from models.schedule.shares import Claim, Shares

_WINDOW_S = 30.0
PRIORITY_S = 1.0  # of waiting, that one unit of priority is worth


@dataclass(slots=True, eq=False)
class Place(Claim):
    """One sequence's place: first in the queue, then among the running.

    ``due`` is when it arrived, in seconds, shifted by its priority.
    """

    turn: asyncio.Future[Busy | None] = field(
        default_factory=lambda: asyncio.get_running_loop().create_future()
    )
    left: bool = False

    @property
    def running(self) -> bool:
        """Whether its turn has come."""
        return self._answered and self.turn.result() is None

    @property
    def refused(self) -> bool:
        """Whether it had to give way."""
        return self._answered and self.turn.result() is not None

    @property
    def _answered(self) -> bool:
        return self.turn.done() and not self.turn.cancelled()

    async def wait(self) -> None:
        """Returns when this place is among the running; safe to cancel.

        Raises ``Busy`` if its request has to give way to another user's instead.
        """
        if refusal := await asyncio.shield(self.turn):
            raise refusal


class Admission:
    """At most ``max_running`` places run, and ``max_waiting`` wait with ``max_waiting_tokens``."""

    def __init__(self, max_running: int, max_waiting: int, max_waiting_tokens: int) -> None:
        self.max_running = max_running
        self.max_waiting = max_waiting
        self.max_waiting_tokens = max_waiting_tokens
        self.running = 0
        self.ended = 0  # places that ran and were given back, so far
        self._shares: Shares[Place] = Shares(max_waiting)
        self._finished: deque[float] = deque(maxlen=4096)  # when places became free lately

    @property
    def waiting(self) -> int:
        return self._shares.all.waiting

    @property
    def waiting_tokens(self) -> int:
        return self._shares.all.waiting_tokens

    def enter(
        self, count: int, prompt_tokens: int, priority: int = 0, user: User = ANYBODY
    ) -> list[Place]:
        """Places for ``count`` sequences over one prompt, in the queue until their turns come.

        Raises ``Busy`` when they would be too many to wait, and then takes none; unless another
        user has so much more of the queue that the last requests of that one give way.
        """
        if reason := self._excess(count, prompt_tokens):
            self._make_room(user, Demand(count, prompt_tokens), reason)
        due = time.monotonic() + PRIORITY_S * priority
        places = [Place(user, 0 if index else prompt_tokens, due) for index in range(count)]
        for place in places:
            place.fellows = places
            self._shares.push(place)
        self._advance()
        return places

    def leave(self, place: Place, tokens: int = 0) -> None:
        """Gives a place back, from the queue or from among the running. Idempotent.

        So many ``tokens`` were computed for it.
        """
        if place.left:
            return
        place.left = True
        if place.running:
            self.running -= 1
            self.ended += 1
            self._finished.append(time.monotonic())
            self._shares.settle(place, tokens)
        else:
            self._shares.remove(place)
            place.turn.cancel()
        self._advance()

    def retry_after(self) -> float:
        """Seconds until a place should be free, by the rate at which places became free lately."""
        now = time.monotonic()
        while self._finished and self._finished[0] < now - _WINDOW_S:
            self._finished.popleft()
        if not self._finished:
            return 1.0
        rate = len(self._finished) / max(now - self._finished[0], 1.0)
        return min(max((self.waiting + 1) / rate, 1.0), 60.0)

    def _advance(self) -> None:
        while self.waiting and self.running < self.max_running:
            place = self._shares.pop()
            self.running += 1
            place.turn.set_result(None)

    def _excess(self, count: int, prompt_tokens: int) -> str:
        """Why so many more cannot wait; empty if they can."""
        queued = max(0, self.running + self.waiting + count - self.max_running)
        if queued > self.max_waiting:
            return f"{self.waiting} requests are waiting"
        if self.waiting and self.waiting_tokens + prompt_tokens > self.max_waiting_tokens:
            return f"{self.waiting_tokens} prompt tokens are waiting"
        return ""

    def _make_room(self, user: User, brings: Demand, reason: str) -> None:
        most = Demand(self.max_waiting, self.max_waiting_tokens)
        busy = self._busy(reason)
        yielding = who_yields(self._shares.all, user, brings, most)
        if not yielding:
            raise busy
        for place in yielding:
            place.left = True
            self._shares.remove(place)
            place.turn.set_result(busy)

    def _busy(self, reason: str) -> Busy:
        wait = self.retry_after()
        return Busy(f"The model is busy: {reason}. Retry in {math.ceil(wait)} seconds.", wait)
