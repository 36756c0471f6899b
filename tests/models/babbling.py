"""A tiny random model over the byte tokenizer: without a grammar it says nothing of sense."""

from __future__ import annotations

from typing import Any

from models.step.model import StepModel
from models.text.loading import byte_pipeline
from tests.models.step.tiny import served, tiny


def babbling(
    *,
    launch_ahead: bool = False,
    context: int = 512,
    vocab_size: int | None = None,
    **wishes: Any,
) -> StepModel:
    """``launch_ahead`` as on a GPU; ``context`` in tokens; ``wishes`` as of ``served``."""
    size = vocab_size or byte_pipeline().vocab_size
    model = tiny("llama", vocab_size=size, max_position_embeddings=context)
    step_model = served(model, **wishes)
    step_model.launch_ahead = launch_ahead
    return step_model
