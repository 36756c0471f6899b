"""Named counters that several may share, and how they are kept in this process."""

from __future__ import annotations

import asyncio
import contextvars
import logging
import time
from collections.abc import Callable, Mapping
from typing import Protocol, TypeAlias

from models.errors import EngineError

logger = logging.getLogger("stepserve")

LIFE_S = 150  # of a counter: all are of certain minutes, or less
TIMEOUT_S = 0.5
PAUSE_S = 5.0

Amounts = Mapping[str, int]
Adding: TypeAlias = "asyncio.Task[dict[str, int] | None]"


class Counts(Protocol):
    """Counters by name, from zero, forgotten ``LIFE_S`` after the first amount or the last.

    None falls below zero: what is given back may have been charged to counts that are lost.
    """

    async def add(self, amounts: Amounts) -> dict[str, int]:
        """Adds to each, 0 to read it; what each is then. Raises ``EngineError``."""
        ...


class MemoryCounts:
    """``Counts`` of this process."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._counts: dict[str, int] = {}
        self._ends: dict[str, float] = {}  # in the order in which they began

    @property
    def size(self) -> int:
        """Counters that are kept."""
        return len(self._counts)

    async def add(self, amounts: Amounts) -> dict[str, int]:
        self._forget()
        for name, amount in amounts.items():
            if amount:
                self._ends.setdefault(name, self._clock() + LIFE_S)
                self._counts[name] = max(0, self._counts.get(name, 0) + amount)
        return {name: self._counts.get(name, 0) for name in amounts}

    def _forget(self) -> None:
        now = self._clock()
        while self._ends and (name := next(iter(self._ends))) and self._ends[name] <= now:
            del self._ends[name], self._counts[name]


class LenientCounts:
    """Counts that hold nobody up: where they cannot be had in time, there are none for a while."""

    def __init__(
        self, counts: Counts, timeout_s: float = TIMEOUT_S, pause_s: float = PAUSE_S
    ) -> None:
        self._counts = counts
        self._timeout_s = timeout_s
        self._pause_s = pause_s
        self._until = 0.0  # by the monotonic clock
        self._adding: set[Adding] = set()

    async def add(self, amounts: Amounts) -> dict[str, int] | None:
        """As ``Counts.add``, None where that fails. It is done also if its caller is cancelled."""
        return await asyncio.shield(self.begin(amounts))

    def begin(self, amounts: Amounts, after: Adding | None = None) -> Adding:
        """The same on its way, which begins when another has ended."""
        # In a context of its own: Serve cancels what it finds in a cancelled request's context.
        task = asyncio.get_running_loop().create_task(
            self._add(amounts, after), context=contextvars.Context()
        )
        self._adding.add(task)
        task.add_done_callback(self._adding.discard)
        return task

    async def _add(self, amounts: Amounts, after: Adding | None) -> dict[str, int] | None:
        if after is not None and not after.done():
            await asyncio.wait([after])
        if time.monotonic() < self._until:
            return None
        try:
            async with asyncio.timeout(self._timeout_s):
                return await self._counts.add(amounts)
        except (EngineError, TimeoutError) as error:
            logger.warning(
                "the counts of rate limits are not available, requests are let in for %g s: %s",
                self._pause_s,
                error or "no answer in time",
            )
            self._until = time.monotonic() + self._pause_s
            return None
