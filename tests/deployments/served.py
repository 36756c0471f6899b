"""Models of one's own for a real graph without weights: factories that settings can name."""

from __future__ import annotations

from tests.models.recall import RecallModel, recall_model


def recall(seconds: float = 0.0, slots: int = 32, blocks: int = 1024) -> RecallModel:
    """Token ids below 97: with the byte tokenizer, always whole characters."""
    return recall_model(blocks=blocks, slots=slots, max_context=512, seconds=seconds)
