"""One step over many sequences: plan, launch, collect. All calls on one event loop.

The model runs on a thread of its own. Step N+1 is launched before step N's tokens are handed out;
where the device gains from it, even before step N has ended.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import abc, deque
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from itertools import islice, takewhile

from models.errors import Closed, Failed
from models.landing import Read, end_of, read
from models.metrics import LlmMetrics
from models.progress import Progress
from models.schedule.blocks import BlockPool
from models.schedule.lookup import Drafting
from models.schedule.pace import Pace
from models.schedule.plan import Scheduler
from models.schedule.sequence import Chunk, Scores, Sequence
from models.schedule.work import Work
from models.step.model import StepModel

logger = logging.getLogger("stepserve")

WAIT_S = 0.02  # for late grammars, before others are asked whether they have come meanwhile


@dataclass(frozen=True, slots=True)
class _Step:
    chunks: list[Chunk]
    read: abc.Callable[[], Future[Read]]  # may be called again, if nobody waited for its end
    started: float


class Stepper:
    """Advances all live sequences together. ``failure`` is set once a step has failed."""

    def __init__(
        self,
        model: StepModel,
        *,
        step_tokens: int,
        metrics: LlmMetrics,
        step_s: float | None = None,
        drafting: Drafting | None = None,
    ) -> None:
        """``step_s``: how long a step should take while somebody decodes; see ``Pace``."""
        if drafting and not model.capacity.drafts:
            logger.warning("no speculation: the model samples one token of a sequence in a step")
            drafting = None
        capacity = model.capacity
        if capacity.blocks * capacity.block_size < capacity.max_context:
            raise ValueError(
                f"{capacity.blocks} blocks of {capacity.block_size} tokens cannot hold one sequence"
                f" of {capacity.max_context} tokens"
            )
        self.model = model
        self.failure: str | None = None
        self.last_progress = time.monotonic()
        self._closed = False
        self._metrics = metrics
        self._scheduler = Scheduler(
            BlockPool(capacity.blocks, capacity.block_size, capacity.prefix_cache),
            capacity.slots,
            step_tokens,
            Pace(step_s),
            drafting,
        )
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="step")
        self._flying: deque[_Step] = deque()
        self._depth = 2 if model.launch_ahead else 1
        self._progress: dict[Sequence, Progress] = {}

    @property
    def pool(self) -> BlockPool:
        return self._scheduler.pool

    @property
    def work(self) -> Work:
        """What steps have computed."""
        return self._scheduler.work

    @property
    def prompt_budget(self) -> int:
        """Prompt tokens that a step may compute now beside those who decode."""
        return self._scheduler.prompt_budget

    @property
    def live(self) -> int:
        """Sequences that take part in steps."""
        return len(self._scheduler.live)

    def add(self, sequence: Sequence) -> None:
        if not self._scheduler.live:
            self.last_progress = time.monotonic()
        self._scheduler.add(sequence)

    def remove(self, sequence: Sequence) -> None:
        """Frees at once all that a sequence holds; from here on its progress is empty. Idempotent.

        A step that is on the device may still write to its blocks, but whoever gets them next
        writes in a later step.
        """
        self._end(sequence)
        self._progress.pop(sequence, None)

    async def step(self, sequences: abc.Sequence[Sequence]) -> list[Progress]:
        """One step over all live sequences; what it brought each of those asked for, in order.

        Never raises for a failed step: its sequences' progress holds the error. So does that of all
        once the stepper is closed.
        """
        try:
            self._launch(self._depth)
            if self._flying:
                await self._collect(self._flying[0])
            else:
                await self._wait_for_grammars()
            self._launch(1)
        except Exception as error:  # a model's or our own: it fails this step's sequences only
            if not self._closed:
                await self._fail(error)
        if self._closed:
            return [Progress(error=Closed()) for _ in sequences]
        return [self._progress.pop(sequence, Progress()) for sequence in sequences]

    def close(self) -> None:
        """Ends the device thread, after what it is doing. A step that is waited for ends then."""
        self._closed = True
        self._thread.shutdown(wait=True, cancel_futures=True)

    def _launch(self, depth: int) -> None:
        while len(self._flying) < depth:
            chunks, preempted = self._scheduler.plan()
            for slot in preempted:
                self._release(slot)
            if preempted:
                self._metrics.preempted(len(preempted))
            if not chunks:
                return
            for chunk in chunks:
                self._count_prefix(chunk)
            self._flying.append(_Step(chunks, self._started(chunks), time.monotonic()))

    def _started(self, chunks: list[Chunk]) -> abc.Callable[[], Future[Read]]:
        """How to read the step that now begins: behind the next one, if that goes ahead of it."""
        if self._depth > 1:
            launched = self._thread.submit(self.model.launch, chunks)
            return partial(self._thread.submit, read, chunks, launched.result)
        done = self._thread.submit(read, chunks, partial(self.model.launch, chunks))
        return lambda: done

    async def _collect(self, step: _Step) -> None:
        tokens, scores = await end_of(step.read())
        self._measure(step)
        sampled, scored = iter(tokens), iter(scores)
        for chunk in step.chunks:
            came = tuple(islice(sampled, chunk.sampled))
            found = tuple(islice(scored, chunk.scores)) if scores else ()
            if not chunk.sequence.ended:
                self._apply(chunk, came, found)
        self._flying.popleft()

    async def _wait_for_grammars(self) -> None:
        """Lets one of those catch up without which there is nothing to compute."""
        late = [s.constraint.ruling for s in self._scheduler.live if s.constraint and not s.ready]
        if late:
            rulings = [asyncio.wrap_future(ruling) for ruling in late]
            await asyncio.wait(rulings, timeout=WAIT_S, return_when=asyncio.FIRST_COMPLETED)

    def _apply(self, chunk: Chunk, came: tuple[int, ...], scores: tuple[Scores, ...]) -> None:
        count = len(chunk.targets)
        chunk.sequence.prompt_scores.update(enumerate(scores[:count], chunk.start))
        if not came:
            return
        chunk.sequence.pending -= 1
        if chunk.draft:
            came = self._verify(chunk, came)
        for place, token in enumerate(came, count):
            if not chunk.sequence.ended:
                self._take(chunk, token, scores[place : place + 1])

    def _verify(self, chunk: Chunk, came: tuple[int, ...]) -> tuple[int, ...]:
        """The tokens that plain decoding would have brought: up to the first that was not drafted.

        What was sampled behind that read a token that never came.
        """
        pairs = zip(chunk.draft, came, strict=False)
        accepted = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))
        self._scheduler.verified(chunk, accepted)
        self._metrics.of(chunk.adapter).drafted(len(chunk.draft), accepted)
        return came[: accepted + 1]

    def _take(self, chunk: Chunk, token: int, scores: tuple[Scores, ...]) -> None:
        progress = self._progress.setdefault(chunk.sequence, Progress())
        progress.take(chunk, token if chunk.forced is None else chunk.forced, scores)
        if progress.finish or progress.error:
            self._end(chunk.sequence)

    def _end(self, sequence: Sequence) -> None:
        self._release(self._scheduler.remove(sequence))
        if not self._scheduler.live:
            self._check()

    def _check(self) -> None:
        try:
            self.pool.check()
        except AssertionError as error:
            logger.exception("the pool of KV blocks is not as it should be")
            self.failure = f"{type(error).__name__}: {error}"
            self.pool.reset()

    async def _fail(self, error: Exception) -> None:
        chunks = self._flying[0].chunks if self._flying else []
        lost = [chunk.sequence for chunk in chunks if not chunk.sequence.ended]
        lost = lost or list(self._scheduler.live)
        logger.error("a step failed: %s", [sequence.id for sequence in lost], exc_info=error)
        self.failure = f"{type(error).__name__}: {error}"
        self._flying.clear()
        self._scheduler.reset(lost)
        for sequence in lost:
            self._progress[sequence] = Progress(error=Failed(f"The step failed: {self.failure}"))
        reset = self._thread.submit(self.model.reset)
        await asyncio.wait([asyncio.wrap_future(reset)])
        if not reset.cancelled() and reset.exception():
            logger.error("the model could not be reset", exc_info=reset.exception())

    def _release(self, slot: int | None) -> None:
        if slot is not None and not self._closed:
            self._thread.submit(self.model.release, slot)

    def _count_prefix(self, chunk: Chunk) -> None:
        sequence = chunk.sequence
        if sequence.cached is None:
            sequence.cached = chunk.start
            metrics = self._metrics.of(sequence.adapter)
            metrics.prefix(queries=sequence.prompt_length, hits=chunk.start)

    def _measure(self, step: _Step) -> None:
        now = time.monotonic()
        started = max(step.started, self.last_progress)
        self.last_progress = now
        self._scheduler.took(step.chunks, now - started)
        self._metrics.step(
            now - started,
            sequences=len(step.chunks),
            tokens=sum(chunk.count for chunk in step.chunks),
        )
