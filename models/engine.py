"""The one interface that everything above the models speaks."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Protocol

from models.events import Event
from models.request import GenerateRequest


class LlmEngine(Protocol):
    """Text in, events out. An engine with its own scheduler implements this."""

    name: str
    max_context: int  # tokens, prompt and answer together

    def generate(self, request: GenerateRequest) -> AsyncGenerator[Event, None]:
        """Yields ``Started`` once, then ``Text`` and one ``Finished`` for each of ``n`` choices.

        Raises ``EngineError``, before ``Started`` or at any later point: ``Invalid`` for whatever
        it cannot do of what the request asks, ``TimedOut``, and others. Closing the generator
        cancels the request and frees what it held within one step.
        """
        ...
