"""The graph as ``Embeds``: Tokenizer, then Embedder."""

from __future__ import annotations

from typing import Any

from deployments.calls import result_of, results_of_all
from deployments.remote import Handle
from deployments.served import Description
from models.embedding import Embedded, EmbedRequest, TokenInputs


class RemoteEmbedder:
    """One embedding model, in the ingress. ``max_context`` is 0 until ``describe`` was answered."""

    def __init__(self, name: str, tokenizer: Handle, model: Handle) -> None:
        self.name = name
        self.max_context = 0
        # gRPC between replicas, whatever the environment says: three times the items a second.
        self._model = model.options(_by_reference=False)
        self._encode = tokenizer.options(_by_reference=False, method_name="encode_inputs")
        self._describe = self._model.options(method_name="describe")
        self._embed = self._model.options(method_name="embed")

    async def describe(self) -> Description:
        """What a replica tells of its model; waits until there is one."""
        description: Description = await result_of(self._describe.remote)
        self.max_context = description["max_context"]
        return description

    async def ask_replicas(self, method: str, *args: Any, timeout_s: float) -> list[Any]:
        """What each replica returned, None for one that failed or took longer."""
        return await results_of_all(self._model, method, *args, timeout_s=timeout_s)

    async def embed(self, request: EmbedRequest) -> Embedded:
        """See ``Embeds.embed``."""
        if not self.max_context:
            await self.describe()
        limit = self.max_context
        inputs: TokenInputs = await result_of(lambda: self._encode.remote(request, limit))
        embedded: Embedded = await result_of(lambda: self._embed.remote(inputs))
        return embedded
