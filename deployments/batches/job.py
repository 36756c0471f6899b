"""A batch under way: which of its lines are ahead, and what became of the others."""

from __future__ import annotations

import asyncio
import time
from array import array
from collections.abc import Iterator
from io import BufferedReader
from itertools import chain
from pathlib import Path
from typing import Any

from deployments.batches.lines import Checked, Limits, Line, check, parse, unanswered
from deployments.batches.output import Output
from deployments.batches.wire import BatchRecord, Status, Usage

OK = 200
REASONS = {
    "expired": "This request could not be executed before the completion window expired.",
    "cancelled": "This request was not executed: the batch was cancelled.",
}


class Job:
    """Each line of its input ends as one line, in the output or in the error file."""

    def __init__(
        self, record: BatchRecord, input: Path, output: Output, errors: Output, limits: Limits
    ) -> None:
        self.record = record
        self.running: set[asyncio.Task[None]] = set()
        self.over = asyncio.Event()  # nothing more will be answered
        self._path = input
        self._output = output
        self._errors = errors
        self._limits = limits
        self._input: BufferedReader | None = None
        self._ahead: Iterator[int] = iter(array("Q"))
        self._drained = False

    @property
    def seconds_left(self) -> float:
        return self.record.expires_at - time.time()

    def prepare(self) -> Checked:
        """Takes up what an earlier process has done, blocking. The batch fails by the errors."""
        record = self.record
        done: set[str] = set()
        record.completed, record.failed, record.usage = 0, 0, Usage()
        for line in chain(self._output.read(), self._errors.read()):
            done.add(line["custom_id"])
            self._count(line)
        found = check(self._path, record.endpoint, self._limits, done)
        self._ahead = iter(found.ahead)
        if found.ahead:
            self._input = self._path.open("rb")
        return found

    def next_line(self) -> Line | None:
        """The next one that is to be answered, None behind the last."""
        for place in self._ahead:
            assert self._input is not None
            self._input.seek(place)
            return parse(self._input.readline())
        self._drained = True
        self.look()
        return None

    def look(self) -> None:
        """Whether all is done."""
        if self._drained and not self.running:
            self.over.set()

    def put(self, line: dict[str, Any]) -> None:
        """What became of a line. Raises ``OSError``, and has then put nothing."""
        (self._output if _succeeded(line) else self._errors).append(line)
        self._count(line)

    async def abandon(self) -> None:
        """Cancels what runs."""
        for task in self.running:
            task.cancel()
        if self.running:
            await asyncio.wait(self.running)

    def give_up_rest(self, reason: str) -> None:
        """Tells of all lines that were not answered why, blocking. Raises ``OSError``."""
        self.close()
        self.record.total = self.prepare().total
        while (line := self.next_line()) is not None:
            self.put(unanswered(line.custom_id, f"batch_{reason}", REASONS[reason]))

    def close(self) -> None:
        """What was put is on the disk."""
        self._output.close()
        self._errors.close()
        if self._input is not None:
            self._input.close()
            self._input = None

    def _count(self, line: dict[str, Any]) -> None:
        if _succeeded(line):
            self.record.completed += 1
            self.record.usage.add(line["response"]["body"])
        else:
            self.record.failed += 1


def _succeeded(line: dict[str, Any]) -> bool:
    response = line["response"]
    return response is not None and response["status_code"] == OK


def begun(record: BatchRecord, found: Checked) -> Status:
    """What becomes of a batch whose input was looked through: it fails, or goes on."""
    record.total, record.model, record.errors = found.total, found.model, found.errors
    if found.errors:
        return "failed"
    return "in_progress" if record.status == "validating" else record.status
