"""Files and batches of one process: what keeps them on disk, and what runs them."""

from __future__ import annotations

import asyncio
import os
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

from configs.settings import AppSettings
from deployments.batches.desk import Counts
from deployments.batches.disk import Space, asked_of_the_disk, open_when_free
from deployments.batches.files import Files
from deployments.batches.inside import Inside
from deployments.batches.lines import Limits
from deployments.batches.pages import page
from deployments.batches.records import Batches
from deployments.batches.runner import Runner, patiently
from deployments.batches.wire import (
    DAY_S,
    MIB,
    WINDOW_S,
    BatchRecord,
    BatchWish,
    FileWish,
    Shown,
    new_id,
    now,
)
from deployments.engines import Served
from models.errors import Invalid

SWEEP_S = 600.0


class LocalDesk:
    """A ``Desk`` in this process, made on the event loop that runs its batches.

    ``opened`` is its folder, which is closed with it.
    """

    @classmethod
    async def open(
        cls, engines: Mapping[str, Served], settings: AppSettings, window_s: float = WINDOW_S
    ) -> LocalDesk:
        """Once its folder is free. Raises ``OSError`` if it cannot be used."""
        assert settings.batches is not None
        folder = await open_when_free(settings.batches.folder)
        return cls(engines, settings, folder, window_s)

    def __init__(
        self,
        engines: Mapping[str, Served],
        settings: AppSettings,
        opened: tuple[Path, int],
        window_s: float,
    ) -> None:
        assert settings.batches is not None
        own = settings.batches
        folder, self._lock = opened
        self._window_s = window_s
        space = Space(int(own.max_folder_mib * MIB))
        kept_s = int(own.kept_days * DAY_S)
        self._files = Files(folder, space, int(own.max_file_mib * MIB), kept_s)
        self._batches = Batches(folder, space, kept_s)
        if self._batches.whole:
            self._files.remove_strangers(self._batches.files)
        limits = Limits(own.max_requests, settings.max_body_bytes)
        at_once = own.at_once or half_of_the_places(settings)
        inside = Inside(engines, settings)
        self._runner = Runner(inside.ask, self._files, self._batches, space, limits, at_once)
        for record in self._batches.unfinished:
            self._runner.start(record)
        self._sweeping = asyncio.create_task(self._sweep())

    @property
    def failure(self) -> BaseException | None:
        """What must not happen, and did."""
        return self._runner.failure

    async def begin_upload(self) -> str:
        with asked_of_the_disk():
            return self._files.begin()

    async def write_upload(self, upload: str, offset: int, data: bytes) -> None:
        with asked_of_the_disk():
            await asyncio.to_thread(self._files.write, upload, offset, data)

    async def keep_upload(self, upload: str, wish: FileWish) -> Shown:
        with asked_of_the_disk():
            return self._files.keep(upload, wish).shown()

    async def drop_upload(self, upload: str) -> None:
        with asked_of_the_disk():
            await asyncio.to_thread(self._files.drop, upload)

    async def file(self, owner: str, id: str) -> Shown | None:
        record = self._files.find(owner, id)
        return None if record is None else record.shown()

    async def files(
        self, owner: str, purpose: str | None, order: str, after: str | None, limit: int
    ) -> Shown:
        found = self._files.of(owner, purpose)
        return page(found if order == "desc" else found[::-1], after, limit)

    async def read_file(self, owner: str, id: str, offset: int, size: int) -> bytes | None:
        if self._files.find(owner, id) is None:
            return None
        with asked_of_the_disk():
            return await asyncio.to_thread(self._files.read, id, offset, size)

    async def delete_file(self, owner: str, id: str) -> bool:
        if self._files.find(owner, id) is None:
            return False
        if id in self._batches.files:
            raise Invalid(f"The file '{id}' is in use by a batch that has not ended.", "file_id")
        with asked_of_the_disk():
            self._files.delete(id)
        return True

    async def create_batch(self, wish: BatchWish) -> Shown:
        file = self._files.find(wish.owner, wish.input_file_id)
        if file is None:
            raise Invalid(f"No such File object: {wish.input_file_id}", "input_file_id")
        if file.purpose != "batch":
            message = f"The purpose of file '{file.id}' is '{file.purpose}', not 'batch'."
            raise Invalid(message, "input_file_id")
        known = self._batches.find(wish.owner, wish.id)
        with asked_of_the_disk():
            return (known or self._new_batch(wish)).shown()

    async def batch(self, owner: str, id: str) -> Shown | None:
        record = self._batches.find(owner, id)
        return None if record is None else record.shown()

    async def batches(self, owner: str, after: str | None, limit: int) -> Shown:
        return page(self._batches.of(owner), after, limit)

    async def cancel_batch(self, owner: str, id: str) -> Shown | None:
        record = self._batches.find(owner, id)
        if record is None:
            return None
        if record.ended or record.status == "finalizing":
            raise Invalid(f"Cannot cancel a batch with status '{record.status}'.")
        if record.status != "cancelling":
            with asked_of_the_disk():
                self._runner.cancel(record)
        return record.shown()

    async def counts(self) -> Counts:
        records = self._batches.all
        requests: Counter[str] = Counter()
        for one in records:
            requests += Counter(completed=one.completed, failed=one.failed)
            if not one.ended:
                requests["ahead"] += one.total - one.completed - one.failed
        return {"batches": Counter(one.status for one in records), "requests": requests}

    async def stop(self) -> None:
        self._sweeping.cancel()
        await self._runner.stop()

    async def close(self) -> None:
        """Also leaves the folder to others."""
        await self.stop()
        os.close(self._lock)

    def _new_batch(self, wish: BatchWish) -> BatchRecord:
        created = now()
        record = BatchRecord(
            **wish.model_dump(),
            output_file_id=new_id("file-"),
            error_file_id=new_id("file-"),
            created_at=created,
            expires_at=created + int(self._window_s),
        )
        self._batches.add(record)
        self._runner.start(record)
        return record

    async def _sweep(self) -> None:
        while True:
            await patiently(self._remove_expired)
            await asyncio.sleep(SWEEP_S)

    async def _remove_expired(self) -> None:
        self._files.sweep(self._batches.files)
        self._batches.sweep()


def half_of_the_places(settings: AppSettings) -> int:
    """So that half of them stay free for clients, whichever model is asked."""
    return max(1, min(model.engine.max_running for model in settings.models) // 2)
