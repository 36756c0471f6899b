"""All models by the names that clients send, and what each of them can do."""

from __future__ import annotations

from collections.abc import Mapping

from deployments.openai.catalog import model_not_found, wrong_task
from models.embedding import Embeds
from models.engine import LlmEngine

Served = LlmEngine | Embeds


def engine_named(engines: Mapping[str, Served], name: str) -> LlmEngine:
    """A model that generates text. Raises ``ApiError``: 404, or 400 for one that does not."""
    engine = _named(engines, name)
    if isinstance(engine, Embeds):
        raise wrong_task(name, "makes embeddings", "use /v1/embeddings")
    return engine


def embedder_named(engines: Mapping[str, Served], name: str) -> Embeds:
    """A model that embeds. Raises ``ApiError``: 404, or 400 for one that does not."""
    engine = _named(engines, name)
    if not isinstance(engine, Embeds):
        raise wrong_task(name, "generates text", "use /v1/chat/completions or /v1/completions")
    return engine


def task_of(engine: Served) -> str:
    """As the settings call it."""
    return "embed" if isinstance(engine, Embeds) else "generate"


def _named(engines: Mapping[str, Served], name: str) -> Served:
    if name not in engines:
        raise model_not_found(name)
    return engines[name]
