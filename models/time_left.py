"""What is left of the time that a request gave itself."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager

from models.errors import TimedOut


class TimeLeft:
    """Runs from when it is made, by the clock of the running event loop; for ever without a limit.

    Whoever hands the request on tells what is left: clocks of two machines are not compared.
    """

    def __init__(self, timeout_s: float | None) -> None:
        self._loop = asyncio.get_running_loop()
        self._ends = None if timeout_s is None else self._loop.time() + timeout_s

    def seconds(self) -> float | None:
        """None without a limit. Raises ``TimedOut`` once there are none."""
        if self._ends is None:
            return None
        seconds = self._ends - self._loop.time()
        if seconds <= 0:
            raise TimedOut
        return seconds

    @asynccontextmanager
    async def bounds(self) -> AsyncGenerator[None, None]:
        """Cancels what is awaited in here when the time is over, and raises ``TimedOut``."""
        try:
            async with asyncio.timeout_at(self._ends):
                yield
        except TimeoutError:
            raise TimedOut from None

    def when_over(self, call: Callable[[], object], *, late_s: float = 0.0) -> Callable[[], object]:
        """Calls once the time has been over for so long; returns what calls that off."""
        if self._ends is None:
            return _nothing
        return self._loop.call_at(self._ends + late_s, call).cancel


def _nothing() -> None:
    pass
