"""A request among those that its key has running at once, wherever they are answered.

Time is cut into slots. A request counts in the slot that it is in and in the next, for as long as
it runs, so that the places that a killed Ingress held are free again after two of them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

from deployments.rates.counts import LenientCounts

SLOT_S = 30.0


class Place:
    """Taken once ``claim`` is added, free again once ``release`` is."""

    def __init__(
        self, key: str, counts: LenientCounts, clock: Callable[[], float], slot_s: float = SLOT_S
    ) -> None:
        self._key = key
        self._counts = counts
        self._clock = clock
        self._slot_s = slot_s
        slot = int(clock() // slot_s)
        self._slots = [slot, slot + 1]
        self._renewal: asyncio.TimerHandle | None = None
        self._adding: asyncio.Task[dict[str, int] | None] | None = None

    def claim(self) -> dict[str, int]:
        """What takes it."""
        return self._amounts(1)

    def taken(self, counts: Mapping[str, int]) -> int:
        """How many places its key had with this one, by what was counted at its claim."""
        return counts[self._name(self._slots[0])]

    def keep(self) -> None:
        """Keeps it from one slot to the next until its release."""
        wait_s = self._slots[-1] * self._slot_s - self._clock()
        self._renewal = asyncio.get_running_loop().call_later(max(0.0, wait_s), self._renew)

    def release(self) -> dict[str, int]:
        """What frees it."""
        if self._renewal is not None:
            self._renewal.cancel()
        return self._amounts(-1)

    def _renew(self) -> None:
        following = self._slots[-1] + 1
        self._slots = [self._slots[-1], following]
        claim = self._counts.add({self._name(following): 1})
        self._adding = asyncio.get_running_loop().create_task(claim)
        self.keep()

    def _amounts(self, amount: int) -> dict[str, int]:
        return {self._name(slot): amount for slot in self._slots}

    def _name(self, slot: int) -> str:
        return f"{self._key}/at-once/{slot}"
