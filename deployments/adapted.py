"""A model's adapter, asked for by its own name: the model's engine, told of the adapter."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol

from models.engine import LlmEngine, Tokenizes
from models.events import Event
from models.request import GenerateRequest, Prompt


class TokenizingEngine(LlmEngine, Tokenizes, Protocol):
    """An engine whose tokenizer may be asked."""


class Adapted:
    """``parent`` is the model's name, ``root`` the adapter's source. It tokenizes as the model."""

    def __init__(self, name: str, engine: TokenizingEngine, root: str) -> None:
        self.name = name
        self.parent = engine.name
        self.root = root
        self._engine = engine

    @property
    def max_context(self) -> int:
        return self._engine.max_context

    def generate(self, request: GenerateRequest) -> AsyncGenerator[Event, None]:
        """See ``LlmEngine.generate``."""
        return self._engine.generate(replace(request, adapter=self.name))

    async def tokenize(self, prompt: Prompt, *, special_tokens: bool = True) -> tuple[int, ...]:
        """See ``Tokenizes.tokenize``."""
        return await self._engine.tokenize(prompt, special_tokens=special_tokens)

    async def token_strings(self, token_ids: Sequence[int]) -> list[str]:
        """See ``Tokenizes.token_strings``."""
        return await self._engine.token_strings(token_ids)

    async def detokenize(self, token_ids: Sequence[int]) -> str:
        """See ``Tokenizes.detokenize``."""
        return await self._engine.detokenize(token_ids)

    async def tokenizer_info(self) -> Mapping[str, Any]:
        """See ``Tokenizes.tokenizer_info``."""
        return await self._engine.tokenizer_info()
