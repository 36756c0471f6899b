"""Batches without Ray: a loop that forms one of what waits, and then the next."""

from __future__ import annotations

import asyncio

from models.batcher import Batcher, Outcome
from models.schedule.fair import Input


class BatchLoop:
    """Runs while some input waits. All calls on one event loop."""

    def __init__(self, batcher: Batcher) -> None:
        self._batcher = batcher
        self._asking: dict[Input, asyncio.Future[Outcome]] = {}
        self._task: asyncio.Task[None] | None = None

    async def advance(self, item: Input) -> Outcome:
        """What its batch brought this input. Cancelled before its batch, it is never computed."""
        asked: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
        self._asking[item] = asked
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._run())
        try:
            return await asked
        finally:
            self._asking.pop(item, None)

    async def _run(self) -> None:
        await asyncio.sleep(0)  # those that come together are in one batch
        while batch := self._batcher.choose(self._asking):
            asked = [self._asking.pop(one) for one in batch]
            for future, outcome in zip(asked, await self._batcher.run(batch), strict=True):
                if not future.done():
                    future.set_result(outcome)
