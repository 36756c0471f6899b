"""Steps without Ray: a loop that gathers every waiting sequence into one step."""

from __future__ import annotations

import asyncio

from models.progress import Progress
from models.schedule.sequence import Sequence
from models.stepper import Stepper


class StepLoop:
    """Runs while some sequence asks for its next step. All calls on one event loop."""

    def __init__(self, stepper: Stepper) -> None:
        self._stepper = stepper
        self._asking: dict[Sequence, asyncio.Future[Progress]] = {}
        self._task: asyncio.Task[None] | None = None

    async def advance(self, sequence: Sequence) -> Progress:
        """What one step brought this sequence. May be cancelled at any moment."""
        asked: asyncio.Future[Progress] = asyncio.get_running_loop().create_future()
        self._asking[sequence] = asked
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._run())
        return await asked

    async def _run(self) -> None:
        while asking := self._take():
            results = await self._stepper.step(list(asking))
            for asked, progress in zip(asking.values(), results, strict=True):
                if not asked.done():
                    asked.set_result(progress)
            await asyncio.sleep(0)  # those that go on ask again before the next step is formed

    def _take(self) -> dict[Sequence, asyncio.Future[Progress]]:
        asking, self._asking = self._asking, {}
        return asking
