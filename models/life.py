"""One sequence from the queue to its end, in a task of its own, and what is measured of it."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from contextvars import Context
from dataclasses import dataclass
from typing import Protocol

from models.errors import Busy, Failed
from models.events import FinishReason
from models.metrics import LlmMetrics
from models.progress import Progress
from models.schedule.admission import Admission, Place
from models.schedule.sequence import Sequence
from models.stepper import Stepper
from models.tokens import Tokens

logger = logging.getLogger("stepserve")


class Steps(Protocol):
    """How a sequence takes part in the next step."""

    async def advance(self, sequence: Sequence) -> Progress:
        """What one step brought this sequence. May be cancelled at any moment."""
        ...


@dataclass(slots=True)
class Surroundings:
    """What all sequences of an engine share."""

    stepper: Stepper
    steps: Steps
    admission: Admission
    metrics: LlmMetrics
    stream_interval: int = 1  # tokens of a sequence that are handed on together

    def observe(self) -> None:
        """Tells the metrics what is held now."""
        pool = self.stepper.pool
        self.metrics.state(
            running=self.admission.running,
            waiting=self.admission.waiting,
            blocks_used=pool.used,
            blocks=pool.count,
        )
        self.metrics.paced(self.stepper.prompt_budget)


class Life:
    """A sequence, the place it was given, and the times that are measured on the way."""

    def __init__(
        self,
        around: Surroundings,
        choice: int,
        sequence: Sequence,
        place: Place,
        put: Callable[[Tokens | Exception], None],
    ) -> None:
        """``put`` takes what the sequence produces, up to a ``finish`` or an error."""
        self.sequence = sequence
        self._around = around
        self._metrics = around.metrics.of(sequence.adapter)
        self._choice = choice
        self._place = place
        self._put = put
        self._arrived = time.monotonic()
        self._running: float | None = None
        self._first: float | None = None
        self._latest: float | None = None
        self._over = False
        # In a context of its own: a step belongs to no single request.
        self._task = asyncio.get_running_loop().create_task(self._run(), context=Context())
        self._task.add_done_callback(self._crashed)

    def finish(self, reason: FinishReason) -> None:
        """Ends it before its time, as what it produces says. Does nothing after its end."""
        if not self._over:
            self.end(reason)
            self._put(Tokens(self._choice, (), reason))

    def end(self, reason: FinishReason) -> None:
        """Frees everything now, and records why. Only the first call counts."""
        if self._over:
            return
        self._over = True
        self._around.stepper.remove(self.sequence)
        self._around.admission.leave(self._place, self.sequence.spent)
        if asyncio.current_task() is not self._task:
            self._task.cancel()
        if not self._place.refused:  # that is as if it had never been let in
            self._record(reason)

    async def _run(self) -> None:
        try:
            await self._place.wait()
        except Busy as busy:
            self.end(FinishReason.ERROR)
            self._put(busy)
        else:
            await self._take_part()

    async def _take_part(self) -> None:
        self._running = time.monotonic()
        self._around.stepper.add(self.sequence)
        while not self._over:
            self._deliver(await self._around.steps.advance(self.sequence))

    def _deliver(self, progress: Progress) -> None:
        if progress.error:
            self.end(FinishReason.ERROR)
            self._put(progress.error)
        elif progress.token_ids or progress.finish:
            self._time(len(progress.token_ids) + (progress.stop_id is not None))
            if progress.finish:
                self.end(progress.finish)
            ids, stop_id, scores = progress.token_ids, progress.stop_id, progress.scores
            self._put(Tokens(self._choice, ids, progress.finish, stop_id, scores))

    def _time(self, count: int) -> None:
        if not count:
            return  # a grammar's end, by a token that does not count
        now = self._around.stepper.last_progress  # equal gaps of a step's sequences are told as one
        self._metrics.generated(count)
        if self._latest is None:
            self._first = now
        else:
            self._metrics.inter_token((now - self._latest) / count, count)
        self._latest = now

    def _record(self, reason: FinishReason) -> None:
        def since_arrival(moment: float | None) -> float | None:
            return None if moment is None else moment - self._arrived

        self._around.observe()
        self._metrics.request_finished(
            reason,
            prompt_tokens=None if self._choice else self.sequence.prompt_length,
            completion_tokens=self.sequence.generated,
            queue_s=since_arrival(self._running),
            first_token_s=since_arrival(self._first),
            total_s=time.monotonic() - self._arrived,
        )

    def _crashed(self, task: asyncio.Task[None]) -> None:
        error = None if task.cancelled() else task.exception()
        if self._over:
            return
        logger.error("a sequence could not take part in steps", exc_info=error)
        self.end(FinishReason.ERROR)
        self._put(Failed(f"The request failed: {error!r}"))
