"""All models by the names that clients send, and what each of them can do."""

from __future__ import annotations

from collections.abc import Mapping

from deployments.adapted import Adapted, TokenizingEngine
from deployments.openai.catalog import model_not_found, wrong_task
from deployments.openai.errors import missing
from deployments.openai.tokenization import no_tokenizer
from models.embedding import Embeds
from models.engine import LlmEngine, Tokenizes

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


def tokenizing_engine(engines: Mapping[str, Served], name: str | None) -> TokenizingEngine:
    """``name`` may be None where but one model generates text. Raises ``ApiError``."""
    engine = engine_named(engines, _only(engines) if name is None else name)
    if not isinstance(engine, Tokenizes):
        raise no_tokenizer(engine.name)
    return engine


def names_of(engines: Mapping[str, Served], task: str) -> list[str]:
    """The models that do this."""
    return [name for name, engine in engines.items() if task_of(engine) == task]


def task_of(engine: Served) -> str:
    """As the settings call it."""
    return "embed" if isinstance(engine, Embeds) else "generate"


def origin_of(engine: Served) -> tuple[str, str | None]:
    """Its root and its parent: of an adapter where it is from, and its model."""
    return (engine.root, engine.parent) if isinstance(engine, Adapted) else (engine.name, None)


def _only(engines: Mapping[str, Served]) -> str:
    """The one model that generates; its adapters, which tokenize alike, leave no doubt."""
    names = [n for n in names_of(engines, "generate") if not isinstance(engines[n], Adapted)]
    if len(names) != 1:
        raise missing("model")
    return names[0]


def _named(engines: Mapping[str, Served], name: str) -> Served:
    if name not in engines:
        raise model_not_found(name)
    return engines[name]
