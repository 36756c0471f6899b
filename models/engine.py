"""The one interface that everything above the models speaks."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Protocol

from models.events import Event
from models.request import GenerateRequest


class LlmEngine(Protocol):
    """Text in, events out. An engine with its own scheduler implements this.

    Only one whose ``follows_grammars`` is true is given requests with a ``grammar``.
    """

    name: str
    max_context: int  # tokens, prompt and answer together

    def generate(self, request: GenerateRequest) -> AsyncGenerator[Event, None]:
        """Yields ``Started`` once, then ``Text`` and one ``Finished`` for each of ``n`` choices.

        Raises ``EngineError``, before ``Started`` or at any later point. Closing the generator
        cancels the request and frees what it held within one step.
        """
        ...
