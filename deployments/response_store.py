"""The Responses deployment: one replica keeps the answers for all replicas of the ingress."""

from __future__ import annotations

from deployments.calls import result_of
from deployments.remote import Handle
from deployments.responses.store import MIB, MemoryStore


class Responses(MemoryStore):
    """Answers are lost with the replica: they are for conversations, not for archives."""

    def __init__(self, max_count: int, max_mib: float) -> None:
        super().__init__(max_count, int(max_mib * MIB))


class RemoteStore:
    """``ResponseStore`` over the deployment's handle."""

    def __init__(self, responses: Handle) -> None:
        handle = responses.options(_by_reference=False)
        self._put = handle.options(method_name="put")
        self._get = handle.options(method_name="get")
        self._delete = handle.options(method_name="delete")

    async def put(self, id: str, record: bytes) -> bool:
        kept: bool = await result_of(lambda: self._put.remote(id, record))
        return kept

    async def get(self, id: str) -> bytes | None:
        record: bytes | None = await result_of(lambda: self._get.remote(id))
        return record

    async def delete(self, id: str) -> bool:
        deleted: bool = await result_of(lambda: self._delete.remote(id))
        return deleted
