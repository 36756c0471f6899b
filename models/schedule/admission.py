"""How much a replica takes on: who runs, who waits, who is turned away. Loop-bound, no locks.

Those who wait are ordered by arrival plus one second for each unit of ``priority``. So a lower
value goes first, equals keep their order, and nobody is overtaken by what arrives later than the
difference of the two priorities in seconds: with bounded priorities nobody starves.
"""

from __future__ import annotations

import asyncio
import bisect
import math
import time
from collections import deque
from dataclasses import dataclass, field

from models.errors import Busy

_WINDOW_S = 30.0
PRIORITY_S = 1.0  # of waiting, that one unit of priority is worth


@dataclass(slots=True, eq=False)
class Place:
    """One sequence's place: first in the queue, then among the running."""

    tokens: int  # prompt tokens it brings to the queue
    due: float  # its rank in the queue: when it arrived, in seconds, shifted by its priority
    turn: asyncio.Future[None] = field(
        default_factory=lambda: asyncio.get_running_loop().create_future()
    )
    left: bool = False

    @property
    def running(self) -> bool:
        return self.turn.done() and not self.turn.cancelled()

    async def wait(self) -> None:
        """Returns when this place is among the running; safe to cancel."""
        await asyncio.shield(self.turn)


class Admission:
    """At most ``max_running`` places run, and ``max_waiting`` wait with ``max_waiting_tokens``."""

    def __init__(self, max_running: int, max_waiting: int, max_waiting_tokens: int) -> None:
        self.max_running = max_running
        self.max_waiting = max_waiting
        self.max_waiting_tokens = max_waiting_tokens
        self.running = 0
        self.waiting_tokens = 0
        self._queue: list[Place] = []  # by ``due``
        self._finished: deque[float] = deque(maxlen=4096)  # when places became free lately

    @property
    def waiting(self) -> int:
        return len(self._queue)

    def enter(self, count: int, prompt_tokens: int, priority: int = 0) -> list[Place]:
        """Places for ``count`` sequences over one prompt, in the queue until their turns come.

        Raises ``Busy`` when they would be too many to wait, and then takes none.
        """
        queued = max(0, self.running + self.waiting + count - self.max_running)
        if queued > self.max_waiting:
            raise self._busy(f"{self.waiting} requests are waiting")
        if self.waiting and self.waiting_tokens + prompt_tokens > self.max_waiting_tokens:
            raise self._busy(f"{self.waiting_tokens} prompt tokens are waiting")
        due = time.monotonic() + PRIORITY_S * priority
        places = [Place(0 if index else prompt_tokens, due) for index in range(count)]
        for place in places:
            bisect.insort(self._queue, place, key=lambda waiting: waiting.due)
        self.waiting_tokens += prompt_tokens
        self._advance()
        return places

    def leave(self, place: Place) -> None:
        """Gives a place back, from the queue or from among the running. Idempotent."""
        if place.left:
            return
        place.left = True
        if place.running:
            self.running -= 1
            self._finished.append(time.monotonic())
        else:
            self._queue.remove(place)
            self.waiting_tokens -= place.tokens
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
        while self._queue and self.running < self.max_running:
            place = self._queue.pop(0)
            self.waiting_tokens -= place.tokens
            self.running += 1
            place.turn.set_result(None)

    def _busy(self, reason: str) -> Busy:
        wait = self.retry_after()
        return Busy(f"The model is busy: {reason}. Retry in {math.ceil(wait)} seconds.", wait)
