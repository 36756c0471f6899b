"""An embedding engine over a model that tallies."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from models.batch_loop import BatchLoop
from models.batcher import Batcher
from models.embed_engine import EmbedEngine
from models.embedding import TokenInputs
from models.metrics import LlmMetrics
from models.request import ANYBODY, User
from models.schedule.admission import Admission
from tests.models.tallying import TallyModel

FEW = 32  # tokens of a batch: two short inputs


@asynccontextmanager
async def running(
    model: TallyModel, *, max_running: int = 8, max_waiting: int = 8, fewest: int | None = None
) -> AsyncIterator[EmbedEngine]:
    metrics = LlmMetrics("tally")
    batcher = Batcher(model, batch_tokens=FEW, metrics=metrics)
    admission = Admission(max_running, max_waiting, 1000)
    try:
        yield EmbedEngine(batcher, BatchLoop(batcher), admission, metrics, fewest)
    finally:
        model.go.set()
        batcher.close()


def ask(*texts: str, dimensions: int | None = None, user: User = ANYBODY) -> TokenInputs:
    return TokenInputs(tuple(tuple(text.encode()) for text in texts), dimensions, user)
