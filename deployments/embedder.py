"""The Embedder deployment: one embedding model a replica, its inputs batched by ``@serve.batch``.

Knows nothing of HTTP or text. Failures are returned: an exception would cross the hop as a remote
traceback.
"""

from __future__ import annotations

import asyncio
from typing import Any

from ray import serve

from configs.settings import ModelSettings
from deployments.batch_gate import BatchGate
from deployments.logs import show_logs
from deployments.ray_metrics import RaySink
from deployments.served import Description, stall
from models.build import build_embedder
from models.embedding import Embedded, TokenInputs
from models.errors import EngineError
from models.metrics import LlmMetrics, Sample


class Embedder:
    """Serves what ``settings`` names; torch is imported and weights are loaded in the replica."""

    async def __init__(self, settings: ModelSettings) -> None:  # type: ignore[misc]
        show_logs()
        self._stall_timeout_s = settings.engine.stall_timeout_s
        self._metrics = LlmMetrics(settings.name, [RaySink(settings.name)])
        # On a thread: the replica goes on answering Serve while a large model loads.
        served = await asyncio.to_thread(build_embedder, settings, self._metrics)
        batcher = served.batcher
        self._engine = served.engine(BatchGate(batcher.run, batcher.choose))

    async def embed(self, request: TokenInputs) -> Embedded | EngineError:
        """Token ids in, vectors out."""
        try:
            return await self._engine.embed(request)
        except EngineError as error:
            return error

    async def describe(self) -> Description:
        """What callers must know of the model, what people want to, and what is wrong with it."""
        model: Any = self._engine.batcher.model
        told = model.describe() if hasattr(model, "describe") else {}
        limits = {"max_context": self._engine.max_context, "dimensions": self._engine.dimensions}
        return {"speaks": "vectors", **limits, **told, "problem": self._problem()}

    async def metrics_samples(self) -> tuple[str, list[Sample]]:
        """This replica's id and all that it measured."""
        self._engine.observe()
        return serve.get_replica_context().replica_id.unique_id, self._metrics.samples()

    async def check_health(self) -> None:
        """Raises after a failed batch or a stall, so that Serve replaces this replica."""
        if problem := self._problem():
            raise RuntimeError(problem)

    def _problem(self) -> str:
        batcher = self._engine.batcher
        if batcher.failure:
            return f"a batch failed: {batcher.failure}"
        running = self._engine.admission.running
        return stall(running, batcher.last_progress, self._stall_timeout_s)
