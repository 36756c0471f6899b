"""The RateLimits deployment: one replica counts for all replicas of the ingress."""

from __future__ import annotations

from deployments.calls import result_of
from deployments.rates.counts import Amounts
from deployments.remote import Handle


class RemoteCounts:
    """``Counts`` over the handle of a deployment of ``MemoryCounts``."""

    def __init__(self, counts: Handle) -> None:
        self._add = counts.options(_by_reference=False, method_name="add")

    async def add(self, amounts: Amounts) -> dict[str, int]:
        added: dict[str, int] = await result_of(lambda: self._add.remote(dict(amounts)))
        return added
