"""The engines by the names that clients send."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from deployments.openai.catalog import model_not_found
from deployments.openai.errors import missing
from deployments.openai.tokenization import no_tokenizer
from models.engine import LlmEngine, Tokenizes


class TokenizingEngine(LlmEngine, Tokenizes, Protocol):
    """An engine whose tokenizer may be asked."""


def engine_named(engines: Mapping[str, LlmEngine], name: str) -> LlmEngine:
    """Raises ``ApiError``: 404."""
    if name not in engines:
        raise model_not_found(name)
    return engines[name]


def tokenizing_engine(engines: Mapping[str, LlmEngine], name: str | None) -> TokenizingEngine:
    """``name`` may be None where there is but one model. Raises ``ApiError``."""
    if name is None and len(engines) > 1:
        raise missing("model")
    engine = engine_named(engines, next(iter(engines)) if name is None else name)
    if not isinstance(engine, Tokenizes):
        raise no_tokenizer(engine.name)
    return engine
