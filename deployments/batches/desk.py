"""All that is done with files and batches, behind one interface."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from deployments.batches.wire import BatchWish, FileWish, Shown

Counts = Mapping[str, Mapping[str, int]]


class Desk(Protocol):
    """One for all ingress replicas. Everything belongs to an owner, the opaque name of a key.

    What is not there, or another's, is None. Raises ``EngineError``.
    """

    async def begin_upload(self) -> str:
        """The id of a new upload, and of the file that it may become."""
        ...

    async def write_upload(self, upload: str, offset: int, data: bytes) -> None: ...

    async def keep_upload(self, upload: str, wish: FileWish) -> Shown:
        """The file."""
        ...

    async def drop_upload(self, upload: str) -> None: ...

    async def file(self, owner: str, id: str) -> Shown | None: ...

    async def files(
        self, owner: str, purpose: str | None, order: str, after: str | None, limit: int
    ) -> Shown: ...

    async def read_file(self, owner: str, id: str, offset: int, size: int) -> bytes | None: ...

    async def delete_file(self, owner: str, id: str) -> bool: ...

    async def create_batch(self, wish: BatchWish) -> Shown: ...

    async def batch(self, owner: str, id: str) -> Shown | None: ...

    async def batches(self, owner: str, after: str | None, limit: int) -> Shown: ...

    async def cancel_batch(self, owner: str, id: str) -> Shown | None: ...

    async def counts(self) -> Counts:
        """Batches by status, and their requests by what became of them."""
        ...

    async def stop(self) -> None:
        """Nothing is run any more."""
        ...
