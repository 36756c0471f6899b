"""The one interface that everything above the models speaks."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

from models.events import Event
from models.request import GenerateRequest, Prompt


class LlmEngine(Protocol):
    """Text in, events out. An engine with its own scheduler implements this.

    Only one whose ``follows_grammars`` is true is given requests with a ``grammar``.
    """

    name: str

    @property
    def max_context(self) -> int:
        """Tokens, prompt and answer together."""
        ...

    def generate(self, request: GenerateRequest) -> AsyncGenerator[Event, None]:
        """Yields ``Started`` once, then ``Text`` and one ``Finished`` for each of ``n`` choices.

        Raises ``EngineError``, before ``Started`` or at any later point: ``Invalid`` for whatever
        it cannot do of what the request asks, ``TimedOut``, and others. Closing the generator
        cancels the request and frees what it held within one step.
        """
        ...


@runtime_checkable
class Tokenizes(Protocol):
    """What an engine does besides if its tokenizer may be asked. All raise ``EngineError``."""

    async def tokenize(self, prompt: Prompt, *, special_tokens: bool = True) -> tuple[int, ...]:
        """The ids of a prompt, none of the empty text.

        ``special_tokens``: a raw text gets those that the tokenizer adds, as in generation.
        """
        ...

    async def token_strings(self, token_ids: Sequence[int]) -> list[str]:
        """Each token as the vocabulary spells it."""
        ...

    async def tokenizer_info(self) -> Mapping[str, Any]:
        """Its special tokens, chat template, ``eos_token_ids`` and ``vocab_size``."""
        ...

    async def detokenize(self, token_ids: Sequence[int]) -> str:
        """The text of ids, special tokens included."""
        ...
