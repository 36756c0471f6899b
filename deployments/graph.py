"""``Probes`` of the graph: what all replicas of its models answer, as one."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import Any, Protocol

from deployments.batches.desk import Counts, Desk
from deployments.exposition import Scrape, Scrapes, render
from deployments.probes import ModelState
from models.errors import EngineError

REPLICA_TIMEOUT_S = 2.0
ABSENT = ModelState("no replica answers")
RESTING = ModelState(description={"replicas": "none until somebody asks"})


class Replicas(Protocol):
    """Those of one deployment."""

    async def ask_replicas(self, method: str, *args: Any, timeout_s: float) -> list[Any]:
        """What each replica returned, None for one that failed or took longer."""
        ...


async def nobody() -> Collection[str]:
    """The models that rest, where none ever do."""
    return ()


class Graph:
    """``Probes`` over all replicas. A replica that does not answer in time holds nothing up.

    ``ingress`` are those that hold keys to limits, None where there are none; ``parents`` are the
    models of adapters, by the adapters' names. ``resting`` names the models that have no replica
    because nobody asks them; it is called only where none answers.
    """

    def __init__(
        self,
        engines: Mapping[str, Replicas],
        ingress: Replicas | None = None,
        batches: Desk | None = None,
        *,
        parents: Mapping[str, str] | None = None,
        resting: Callable[[], Awaitable[Collection[str]]] = nobody,
        vllm_names: bool = False,
    ) -> None:
        self._engines = engines
        self._ingress = ingress
        self._batches = batches
        self._parents = parents or {}
        self._resting = resting
        self._vllm_names = vllm_names
        self._refusals = Scrapes()
        self._scrapes = {name: Scrapes() for name in engines}

    async def ready(self) -> Mapping[str, ModelState]:
        """A model is ready if one of its replicas is, or if it rests; its adapters when it is."""
        states = await asyncio.gather(*map(_state, self._engines.values()))
        models = dict(zip(self._engines, states, strict=True))
        if absent := {name for name, state in models.items() if state is ABSENT}:
            models |= dict.fromkeys(absent.intersection(await self._resting()), RESTING)
        adapters = {
            name: ModelState(models[parent].problem, {"adapter of": parent})
            for name, parent in self._parents.items()
        }
        return {**models, **adapters}

    async def metrics(self) -> str:
        models = asyncio.gather(*map(self._scrape, self._engines))
        limits, batches, scrapes = await asyncio.gather(self._limits(), self._counts(), models)
        known = dict(zip(self._engines, scrapes, strict=True))
        return await asyncio.to_thread(render, known, limits, batches, vllm_names=self._vllm_names)

    async def _counts(self) -> Counts:
        """Of batches; nothing where there are none, or where they do not answer in time."""
        if self._batches is None:
            return {}
        try:
            async with asyncio.timeout(REPLICA_TIMEOUT_S):
                return await self._batches.counts()
        except (EngineError, TimeoutError):
            return {}

    async def _scrape(self, model: str) -> Scrape:
        return self._scrapes[model].take(await _samples(self._engines[model]))

    async def _limits(self) -> Scrape | None:
        return None if self._ingress is None else self._refusals.take(await _samples(self._ingress))


async def _samples(replicas: Replicas) -> list[Any]:
    return await replicas.ask_replicas("metrics_samples", timeout_s=REPLICA_TIMEOUT_S)


async def _state(engine: Replicas) -> ModelState:
    answers = await engine.ask_replicas("describe", timeout_s=REPLICA_TIMEOUT_S)
    descriptions = [dict(answer) for answer in answers if answer is not None]
    if not descriptions:
        return ABSENT
    best = min(descriptions, key=lambda description: bool(description["problem"]))
    del best["speaks"]
    return ModelState(best.pop("problem"), best)
