"""One request's items along a line, and what its own stream says when they are all on their way."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from deployments.lines.outlet import Line, LineLost
from deployments.wire import Item, Packed, pack
from models.errors import EngineError, Failed

Deliver = Callable[[Callable[[Item], None]], Awaitable[None]]

LOST = "The connection to the reader of this answer was lost."


async def carried(line: Line, number: int, deliver: Deliver) -> list[Packed]:
    """How many items were sent, then the error if there was one."""
    loss = _Loss()
    with line.sender(number, loss.happen) as sender:
        try:
            await loss.ends(deliver(lambda item: sender.put(pack(item))))
        except EngineError as error:
            return [("sent", sender.sent), pack(error)]
        except LineLost:
            return [pack(Failed(LOST))]
        return [("sent", sender.sent)]


class _Loss:
    """Ends what the current task awaits once the line is lost, as ``asyncio.timeout`` does."""

    def __init__(self) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._task = task
        self._happened = False

    def happen(self) -> None:
        self._happened = True
        self._task.cancel()

    async def ends(self, work: Awaitable[None]) -> None:
        """Raises ``LineLost``."""
        try:
            await work
        except asyncio.CancelledError:
            if self._happened and not self._task.uncancel():
                raise LineLost("the reader is gone") from None
            raise
