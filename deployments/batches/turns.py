"""Whose line is next: owners take turns, and so do the batches of each."""

from __future__ import annotations

import asyncio
from collections import deque

from deployments.batches.job import Job
from deployments.batches.lines import Line


class Turns:
    """The batches that have lines ahead."""

    def __init__(self) -> None:
        self._owners: dict[str, deque[Job]] = {}
        self._some = asyncio.Event()

    def add(self, job: Job) -> None:
        self._owners.setdefault(job.record.owner, deque()).append(job)
        self._some.set()

    def remove(self, job: Job) -> None:
        """Idempotent."""
        owner = job.record.owner
        jobs = self._owners.get(owner, deque())
        if job in jobs:
            jobs.remove(job)
        if not jobs:
            self._owners.pop(owner, None)

    async def next(self) -> tuple[Job, Line]:
        """Waits until there is one."""
        while True:
            while not self._owners:
                self._some.clear()
                await self._some.wait()
            job = self._choose()
            if line := job.next_line():
                return job, line
            self.remove(job)

    def _choose(self) -> Job:
        owner, jobs = next(iter(self._owners.items()))
        self._owners[owner] = self._owners.pop(owner)  # behind the others
        jobs.rotate(-1)
        return jobs[-1]
