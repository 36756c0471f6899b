"""A bound of every wait of a kind, by one timer for all of them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable


class Silence:
    """Calls ``over`` whenever a wait has lasted ``seconds``. The first wait begins with it.

    Waits begin and end with every token: the timer is only looked at when it goes off.
    """

    def __init__(self, seconds: float, over: Callable[[], object]) -> None:
        self._seconds = seconds
        self._over = over
        self._loop = asyncio.get_running_loop()
        self._now = self._loop.time
        self._since: float | None = self._now()  # while there is a wait
        self._timer = self._loop.call_later(seconds, self._look)

    def begin(self) -> None:
        """A wait begins; one that goes on begins anew."""
        self._since = self._now()

    def end(self) -> None:
        self._since = None

    def close(self) -> None:
        """Calls no more."""
        self._timer.cancel()

    def _look(self) -> None:
        now = self._now()
        rest = (now if self._since is None else self._since) + self._seconds - now
        self._timer = self._loop.call_later(rest if rest > 0 else self._seconds, self._look)
        if rest <= 0:
            self._over()
