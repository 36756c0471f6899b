"""One batch of inputs at a time through an embedding model, on a thread of its own."""

from __future__ import annotations

import asyncio
import logging
import math
import struct
import time
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol

from models.errors import EngineError, Failed
from models.metrics import LlmMetrics
from models.schedule.fair import Input, next_batch

logger = logging.getLogger("stepserve")

Outcome = bytes | EngineError
"""A vector as in ``Embedded``, or why there is none."""


class EmbedModel(Protocol):
    """A model that embeds. One may be of the user's own: whatever has these."""

    vocab_size: int
    max_context: int  # tokens of one input
    dimensions: int

    def embed(self, inputs: Sequence[Sequence[int]]) -> Sequence[Sequence[float]]:
        """The vectors of some inputs of token ids. Called on one thread, one call at a time."""
        ...


class Batcher:
    """All calls on one event loop. ``failure`` is set once a batch has failed."""

    def __init__(self, model: EmbedModel, *, batch_tokens: int, metrics: LlmMetrics) -> None:
        self.model = model
        self.failure: str | None = None
        self.last_progress = time.monotonic()
        self.round = 0  # the turn that the latest batch began with
        self._batch_tokens = batch_tokens
        self._metrics = metrics
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="embed")

    def choose(self, waiting: Iterable[Input]) -> list[Input]:
        """Those of the waiting inputs that go next; none only if none wait."""
        batch = next_batch(waiting, self._batch_tokens)
        if batch:
            self.round = batch[0].turn
        return batch

    async def run(self, batch: list[Input]) -> list[Outcome]:
        """An outcome for each input, in order. A failure of the model is their outcome.

        Cancelling the call does not end what the model computes.
        """
        started = time.monotonic()
        try:
            running = self._thread.submit(self._vectors, batch)
            outcomes = await asyncio.shield(asyncio.wrap_future(running))
        except Exception as error:  # a model's or our own: it fails this batch's inputs only
            return self._fail(batch, error)
        self.last_progress = time.monotonic()
        self._metrics.step(
            self.last_progress - started,
            sequences=len(batch),
            tokens=sum(one.length for one in batch),
        )
        return outcomes

    def close(self) -> None:
        """Ends the model's thread, after what it is doing."""
        self._thread.shutdown(wait=True, cancel_futures=True)

    def _vectors(self, batch: list[Input]) -> list[Outcome]:
        rows = self.model.embed([one.token_ids for one in batch])
        if [len(row) for row in rows] != [self.model.dimensions] * len(batch):
            raise ValueError(
                f"the model's vectors of {len(batch)} inputs are not that many of"
                f" {self.model.dimensions} dimensions"
            )
        return [packed(row, one.dimensions) for row, one in zip(rows, batch, strict=True)]

    def _fail(self, batch: list[Input], error: Exception) -> list[Outcome]:
        logger.error("a batch of %d inputs failed", len(batch), exc_info=error)
        self.failure = f"{type(error).__name__}: {error}"
        return [Failed(f"The model failed: {self.failure}") for _ in batch]


def packed(row: Sequence[float], dimensions: int | None = None) -> Outcome:
    """A vector as bytes. Its first ``dimensions`` alone are made as long as the whole of it was."""
    if not math.isfinite(math.fsum(map(abs, row))):
        return Failed("The model's vector has values that are not finite.")
    if dimensions is not None and dimensions < len(row):
        kept = row[:dimensions]
        length = math.hypot(*kept)
        scale = math.hypot(*row) / length if length else 1.0
        row = [value * scale for value in kept]
    return struct.pack(f"<{len(row)}f", *row)
