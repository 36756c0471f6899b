"""The Batches deployment: one replica keeps files and runs batches, for all of the ingress."""

from __future__ import annotations

import asyncio
from typing import Any

from configs.settings import AppSettings
from deployments.batches.desk import Counts
from deployments.batches.local_desk import LocalDesk
from deployments.batches.wire import BatchWish, FileWish, Shown
from deployments.calls import ReplicaLost, result_of
from deployments.logs import show_logs
from deployments.remote import Handle
from deployments.remote_engines import remote_engines, with_adapters
from models.errors import Busy, EngineError

DESK_TIMEOUT_S = 30.0
RETRY_S = 5.0


class Batches:
    """A ``LocalDesk``. A failure is returned, never raised, as by the Tokenizer."""

    async def __init__(  # type: ignore[misc]
        self, settings: AppSettings, models: list[Handle], tokenizers: list[Handle]
    ) -> None:
        show_logs()
        engines = await remote_engines(settings, models, tokenizers)
        self._desk = await LocalDesk.open(with_adapters(engines, settings), settings)

    async def ask(self, method: str, *args: Any) -> Any:
        """What a method of ``Desk`` returns, or the ``EngineError`` that it raised."""
        try:
            return await getattr(self._desk, method)(*args)
        except EngineError as error:
            return error

    def check_health(self) -> None:
        """Another replica goes on where this one has failed."""
        if self._desk.failure is not None:
            raise RuntimeError("batches cannot go on") from self._desk.failure


class RemoteDesk:
    """``Desk`` over the deployment's handle."""

    def __init__(self, batches: Handle) -> None:
        self._handle = batches.options(_by_reference=False, method_name="ask")

    async def begin_upload(self) -> str:
        upload: str = await self._ask("begin_upload")
        return upload

    async def write_upload(self, upload: str, offset: int, data: bytes) -> None:
        await self._ask("write_upload", upload, offset, data)

    async def keep_upload(self, upload: str, wish: FileWish) -> Shown:
        file: Shown = await self._ask("keep_upload", upload, wish)
        return file

    async def drop_upload(self, upload: str) -> None:
        await self._ask("drop_upload", upload)

    async def file(self, owner: str, id: str) -> Shown | None:
        file: Shown | None = await self._ask("file", owner, id)
        return file

    async def files(
        self, owner: str, purpose: str | None, order: str, after: str | None, limit: int
    ) -> Shown:
        listed: Shown = await self._ask("files", owner, purpose, order, after, limit)
        return listed

    async def read_file(self, owner: str, id: str, offset: int, size: int) -> bytes | None:
        data: bytes | None = await self._ask("read_file", owner, id, offset, size)
        return data

    async def delete_file(self, owner: str, id: str) -> bool:
        deleted: bool = await self._ask("delete_file", owner, id)
        return deleted

    async def create_batch(self, wish: BatchWish) -> Shown:
        batch: Shown = await self._ask("create_batch", wish)
        return batch

    async def batch(self, owner: str, id: str) -> Shown | None:
        batch: Shown | None = await self._ask("batch", owner, id)
        return batch

    async def batches(self, owner: str, after: str | None, limit: int) -> Shown:
        listed: Shown = await self._ask("batches", owner, after, limit)
        return listed

    async def cancel_batch(self, owner: str, id: str) -> Shown | None:
        batch: Shown | None = await self._ask("cancel_batch", owner, id)
        return batch

    async def counts(self) -> Counts:
        counts: Counts = await self._ask("counts")
        return counts

    async def stop(self) -> None:
        await self._ask("stop")

    async def _ask(self, method: str, *args: Any) -> Any:
        try:
            async with asyncio.timeout(DESK_TIMEOUT_S):
                return await result_of(lambda: self._handle.remote(method, *args))
        except (TimeoutError, ReplicaLost):
            raise Busy("Files and batches are not available now.", RETRY_S) from None
