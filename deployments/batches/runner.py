"""Runs batches: a few lines at once of all of them, each batch from validation to its end."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, TypeVar
from uuid import uuid4

from deployments.batches.disk import Space
from deployments.batches.files import Files
from deployments.batches.inside import Answer
from deployments.batches.job import Job, begun
from deployments.batches.lines import Checked, Limits, Line, answered, as_compact
from deployments.batches.output import Output
from deployments.batches.patience import answer_of
from deployments.batches.records import Batches
from deployments.batches.turns import Turns
from deployments.batches.wire import BatchRecord, FileWish, Status
from deployments.openai.parameters import unsupported

logger = logging.getLogger("stepserve")

Ask = Callable[[str, bytes, str], Awaitable[Answer]]
Result = TypeVar("Result")
DISK_RETRY_S = 2.0


class Runner:
    """All calls on one event loop, in which it is made."""

    def __init__(
        self, ask: Ask, files: Files, batches: Batches, space: Space, limits: Limits, at_once: int
    ) -> None:
        self._ask = ask
        self._files = files
        self._batches = batches
        self._space = space
        self._limits = limits
        self._jobs: dict[str, Job] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._turns = Turns()
        self._validating = asyncio.Semaphore(1)
        self._slots = asyncio.Semaphore(at_once)
        self.failure: BaseException | None = None  # of ours: what runs it must be replaced
        self._spawn(self._dispatch())

    def start(self, record: BatchRecord) -> None:
        """Begins a batch, or goes on with it."""
        output, errors = (
            Output(self._files.path(id), self._space, self._files.counted(id))
            for id in (record.output_file_id, record.error_file_id)
        )
        input = self._files.path(record.input_file_id)
        job = Job(record, input, output, errors, self._limits)
        self._jobs[record.id] = job
        self._spawn(self._live(job))

    def cancel(self, record: BatchRecord) -> None:
        """A batch that has not ended answers nothing more, and ends soon. Raises ``OSError``."""
        self._batches.advance(record, "cancelling")
        self._jobs[record.id].over.set()

    async def stop(self) -> None:
        """What runs is given up, for another process to go on with."""
        tasks = self._tasks - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _spawn(self, work: Any) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (failure := task.exception()):
            logger.error("a batch failed unexpectedly", exc_info=failure)
            self.failure = failure

    async def _live(self, job: Job) -> None:
        record = job.record
        try:
            async with self._validating:
                found = await patiently(partial(asyncio.to_thread, job.prepare))
            await self._begin(record, found)
            if not record.ended:
                outcome = await self._outcome(job)
                await self._finish(job, outcome)
        finally:
            job.close()
            del self._jobs[record.id]

    async def _outcome(self, job: Job) -> Status:
        """How it ends, once nothing more is answered."""
        self._turns.add(job)
        outcome: Status = "completed"
        if job.record.status == "cancelling":
            job.over.set()
        try:
            async with asyncio.timeout(job.seconds_left):
                await job.over.wait()
        except TimeoutError:
            outcome = "expired"
        finally:
            self._turns.remove(job)
            await job.abandon()
        return "cancelled" if job.record.status == "cancelling" else outcome

    async def _finish(self, job: Job, outcome: Status) -> None:
        record = job.record
        if outcome == "completed":
            await self._advance(record, "finalizing")
        else:
            await patiently(lambda: asyncio.to_thread(job.give_up_rest, outcome))
        job.close()
        await self._adopt(record)
        await self._advance(record, outcome)
        logger.info(
            "batch %s %s: %d answered, %d failed",
            record.id,
            outcome,
            record.completed,
            record.failed,
        )

    async def _adopt(self, record: BatchRecord) -> None:
        for id, lines, name in (
            (record.output_file_id, record.completed, f"{record.id}_output.jsonl"),
            (record.error_file_id, record.failed, f"{record.id}_error.jsonl"),
        ):
            if lines:
                wish = FileWish(
                    owner=record.owner,
                    filename=name,
                    purpose="batch_output",
                    expires_after_s=record.output_expires_after_s,
                )
                await patiently(partial(asyncio.to_thread, self._files.adopt, id, wish))

    async def _begin(self, record: BatchRecord, found: Checked) -> None:
        async def begin() -> None:
            status = begun(record, found)  # which may be cancelled while the disk takes nothing
            if status != record.status:
                self._batches.advance(record, status)

        await patiently(begin)

    async def _advance(self, record: BatchRecord, status: Status) -> None:
        async def advance() -> None:
            self._batches.advance(record, status)

        await patiently(advance)

    async def _dispatch(self) -> None:
        while True:
            await self._slots.acquire()
            await self._room()
            job, line = await self._turns.next()
            task = asyncio.create_task(self._answer(job, line))
            job.running.add(task)
            task.add_done_callback(partial(self._answered, job))

    async def _room(self) -> None:
        """Returns when there is some: files are deleted, or have expired."""
        while True:
            if not self._space.full:
                return
            await asyncio.sleep(DISK_RETRY_S)

    def _answered(self, job: Job, task: asyncio.Task[None]) -> None:
        self._slots.release()
        job.running.discard(task)
        self._ended(task)
        job.look()

    async def _answer(self, job: Job, line: Line) -> None:
        if line.body.get("stream"):
            error = unsupported("stream")
            result = answered(line.custom_id, error.status, f"req_{uuid4().hex}", error.body)
        else:
            body, owner = as_compact(line.body), job.record.owner
            answer = await answer_of(lambda: self._ask(line.url, body, owner))
            content = json.loads(answer.body)
            result = answered(line.custom_id, answer.status, answer.request_id, content)
        await patiently(partial(_put, job, result))


async def _put(job: Job, result: dict[str, Any]) -> None:
    job.put(result)


async def patiently(work: Callable[[], Awaitable[Result]]) -> Result:
    """Until the disk takes it."""
    while True:
        try:
            return await work()
        except OSError as error:
            logger.error("batches wait for their folder: %s", error)
            await asyncio.sleep(DISK_RETRY_S)
