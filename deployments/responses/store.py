"""Where answers are kept for those who come back: the newest ones, within two limits."""

from __future__ import annotations

from collections import OrderedDict
from typing import Protocol

MIB = 2**20


class ResponseStore(Protocol):
    """One for all ingress replicas. Keeps what it is given as it is; raises ``EngineError``."""

    async def put(self, id: str, record: bytes) -> bool:
        """Whether it is kept."""
        ...

    async def get(self, id: str) -> bytes | None:
        """The record, unless it was never kept, or had to go, or was deleted."""
        ...

    async def delete(self, id: str) -> bool:
        """Whether there was such a record."""
        ...


class MemoryStore:
    """A ``ResponseStore`` in this process. What was used longest ago has to go first."""

    def __init__(self, max_count: int, max_bytes: int) -> None:
        self._max_count = max_count
        self._max_bytes = max_bytes
        self._bytes = 0
        self._records: OrderedDict[str, bytes] = OrderedDict()

    async def put(self, id: str, record: bytes) -> bool:
        if not self._max_count or len(record) > self._max_bytes:
            return False
        await self.delete(id)
        self._records[id] = record
        self._bytes += len(record)
        while len(self._records) > self._max_count or self._bytes > self._max_bytes:
            self._bytes -= len(self._records.popitem(last=False)[1])
        return True

    async def get(self, id: str) -> bytes | None:
        if id in self._records:
            self._records.move_to_end(id)
        return self._records.get(id)

    async def delete(self, id: str) -> bool:
        record = self._records.pop(id, None)
        self._bytes -= len(record or b"")
        return record is not None
