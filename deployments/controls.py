"""What operators may do to a running graph: end answers, and forget what prefix caches hold."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Protocol

from deployments.graph import Replicas
from models.errors import Busy

PATIENCE_S = 10.0  # with replicas: one that takes longer has not done what was asked
RETRY_S = 1.0


class Controls(Protocol):
    """Both raise ``Busy`` where a replica did not answer: then it may not have been done there."""

    async def abort(self, ids: frozenset[str]) -> int:
        """Ends all requests of these ids; how many there were."""
        ...

    async def reset_prefix_cache(self) -> Mapping[str, int | None]:
        """KV blocks that each model's cache held; None of engines with a scheduler of their own."""
        ...


class GraphControls:
    """Over all replicas of the Ingress, and of the models that generate."""

    def __init__(self, ingress: Replicas, models: Mapping[str, Replicas]) -> None:
        self._ingress = ingress
        self._models = models

    async def abort(self, ids: frozenset[str]) -> int:
        return sum(await _asked(self._ingress, "abort_requests", ids))

    async def reset_prefix_cache(self) -> Mapping[str, int | None]:
        replicas = (_asked(one, "reset_prefix_cache") for one in self._models.values())
        told = await asyncio.gather(*replicas)
        return {name: _sum(counts) for name, counts in zip(self._models, told, strict=True)}


async def _asked(replicas: Replicas, method: str, *args: object) -> list[int]:
    """What each replica returned: a list, empty from those to which it means nothing."""
    answers = await replicas.ask_replicas(method, *args, timeout_s=PATIENCE_S)
    if not answers or None in answers:
        raise Busy("Not every replica has answered: please ask again.", RETRY_S)
    return [count for counts in answers for count in counts]


def _sum(counts: list[int]) -> int | None:
    return sum(counts) if counts else None
