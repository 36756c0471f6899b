"""Token ids in, vectors out: admission in front of the batches, and turns among requests.

The graph's Embedder replica and ``Batched`` differ only in how an input gets into a batch.
"""

from __future__ import annotations

import asyncio
import time
from contextvars import Context
from typing import Protocol

from models.batcher import Batcher, Outcome
from models.embedding import Embedded, TokenInputs
from models.errors import Busy, EngineError, Invalid
from models.events import FinishReason
from models.metrics import LlmMetrics
from models.schedule.admission import Admission
from models.schedule.fair import Input


class Batches(Protocol):
    """How an input takes part in a batch."""

    async def advance(self, item: Input) -> Outcome:
        """What its batch brought this input. May be cancelled at any moment."""
        ...


class EmbedEngine:
    """Many requests at once over one ``Batcher``. All calls on one event loop.

    Raises ValueError if ``min_dimensions`` are more than the model has.
    """

    def __init__(
        self,
        batcher: Batcher,
        batches: Batches,
        admission: Admission,
        metrics: LlmMetrics,
        min_dimensions: int | None = None,
    ) -> None:
        self.batcher = batcher
        self.batches = batches
        self.admission = admission
        self.metrics = metrics
        self.max_context = batcher.model.max_context
        self.dimensions = batcher.model.dimensions
        self._fewest = self.dimensions if min_dimensions is None else min_dimensions
        if self._fewest > self.dimensions:
            raise ValueError(
                f"min_dimensions is {self._fewest}, but the model's vectors have {self.dimensions}"
            )

    async def embed(self, request: TokenInputs) -> Embedded:
        """Raises ``EngineError``. Cancelling it drops the inputs whose batch has not begun."""
        self._check(request)
        try:
            return await self._embedded(request)
        except Busy:  # at once, or when it had to give way
            self.metrics.rejected()
            raise

    async def _embedded(self, request: TokenInputs) -> Embedded:
        life = _Life(self, request)
        try:
            vectors = await self._vectors(request, life)
        except EngineError:
            life.end(FinishReason.ERROR)
            raise
        finally:
            life.end(FinishReason.CANCELLED)  # unless it has ended otherwise
        return Embedded(vectors, request.tokens)

    def observe(self) -> None:
        """Tells the metrics what the engine holds now."""
        running, waiting = self.admission.running, self.admission.waiting
        self.metrics.state(running=running, waiting=waiting, blocks_used=0, blocks=0)

    async def _vectors(self, request: TokenInputs, life: _Life) -> tuple[bytes, ...]:
        await life.begin()
        outcomes = await asyncio.gather(*map(self._advance, _in_turn(request, self.batcher.round)))
        for outcome in outcomes:
            if isinstance(outcome, EngineError):
                raise outcome
        life.end(FinishReason.STOP)
        return tuple(outcome for outcome in outcomes if isinstance(outcome, bytes))

    def _advance(self, item: Input) -> asyncio.Task[Outcome]:
        """In a context of its own: a batch belongs to no single request."""
        work = self.batches.advance(item)
        return asyncio.get_running_loop().create_task(work, context=Context())

    def _check(self, request: TokenInputs) -> None:
        largest = max(map(max, request.token_ids))
        if largest >= (vocabulary := self.batcher.model.vocab_size):
            message = f"Token id {largest} is outside the model's {vocabulary} tokens."
            raise Invalid(message, "input")
        if request.dimensions is not None:
            self._check_dimensions(request.dimensions)

    def _check_dimensions(self, dimensions: int) -> None:
        if dimensions == self.dimensions or self._fewest <= dimensions < self.dimensions:
            return
        if self._fewest >= self.dimensions:
            raise Invalid(
                f"This model's vectors have {self.dimensions} dimensions: other numbers of"
                " 'dimensions' are not supported.",
                "dimensions",
            )
        raise Invalid(
            f"'dimensions' must be from {self._fewest} to {self.dimensions} for this model, not"
            f" {dimensions}.",
            "dimensions",
        )


class _Life:
    """A request from the queue to its end, and the times that are measured on the way."""

    def __init__(self, engine: EmbedEngine, request: TokenInputs) -> None:
        self._engine = engine
        self._tokens = request.tokens
        self._arrived = time.monotonic()
        self._running: float | None = None
        self._over = False
        (self._place,) = engine.admission.enter(1, request.tokens, user=request.user)

    async def begin(self) -> None:
        """Returns when it is among the running."""
        await self._place.wait()
        self._running = time.monotonic()
        if self._engine.admission.running == 1:
            self._engine.batcher.last_progress = self._running
        self._engine.observe()

    def end(self, reason: FinishReason) -> None:
        """Gives its place back, and records why. Only the first call counts."""
        if self._over:
            return
        self._over = True
        self._engine.admission.leave(self._place, self._tokens)
        self._engine.observe()
        if self._place.refused:  # that is as if it had never been let in
            return
        self._engine.metrics.request_finished(
            reason,
            prompt_tokens=self._tokens,
            completion_tokens=None,
            queue_s=None if self._running is None else self._running - self._arrived,
            first_token_s=None,
            total_s=time.monotonic() - self._arrived,
        )


def _in_turn(request: TokenInputs, round: int) -> list[Input]:
    """The inputs in their order; long ones have their turns first, next to others as long."""
    lengths = [len(ids) for ids in request.token_ids]
    by_length = sorted(range(len(lengths)), key=lambda index: -lengths[index])
    turns = {index: round + rank for rank, index in enumerate(by_length)}
    return [
        Input(ids, turns[index], request.dimensions) for index, ids in enumerate(request.token_ids)
    ]
