"""An embedding model and its tokenizer as ``Embeds`` in one process, without Ray."""

from __future__ import annotations

import asyncio

from models.embed_engine import EmbedEngine
from models.embedding import Embedded, EmbedRequest
from models.text.inputs import encode_inputs
from models.text.pipeline import TextPipeline


class Batched:
    """``engine`` must be bound to a ``BatchLoop``. To be used on one event loop."""

    def __init__(self, name: str, engine: EmbedEngine, text: TextPipeline) -> None:
        self.name = name
        self.max_context = engine.max_context
        self.engine = engine
        self.text = text

    async def embed(self, request: EmbedRequest) -> Embedded:
        """See ``Embeds.embed``."""
        inputs = await asyncio.to_thread(encode_inputs, self.text, request, self.max_context)
        return await self.engine.embed(inputs)

    def close(self) -> None:
        """Ends the model's thread."""
        self.engine.batcher.close()
