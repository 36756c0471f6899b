"""Embeddings over HTTP, from a request's body to its answer."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from functools import partial
from uuid import uuid4

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from configs.settings import AppSettings
from deployments.access import Access, access_of
from deployments.body import read_logged_json
from deployments.connection import while_connected
from deployments.deadline import within
from deployments.engines import Served, embedder_named
from deployments.openai.embeddings import EmbedCall, parse, write
from deployments.openai.errors import engine_error
from deployments.rates.estimate import of_embedding
from models.embedding import Embeds

TOLD = partial(engine_error, prompt_param="input")
FEW = 8  # vectors; more of them are written off the event loop


class Embeddings:
    """The ASGI endpoint."""

    def __init__(self, engines: Mapping[str, Served], settings: AppSettings) -> None:
        self._engines = engines
        self._settings = settings

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        access = access_of(scope)
        data = await read_logged_json(Request(scope, receive), self._settings)
        call = parse(data, f"{access.request_id}-{uuid4().hex[:12]}")
        embedder = embedder_named(self._engines, call.model)
        access.model, access.named = call.model, call.name
        body = await while_connected(receive, self._answer(call, embedder, access))
        await Response(body, media_type="application/json")(scope, receive, send)

    async def _answer(self, call: EmbedCall, embedder: Embeds, access: Access) -> str:
        if access.allowance is not None:
            await access.allowance.take(of_embedding(call.request))
        async with within(self._settings.request_timeout_s, TOLD):
            embedded = await embedder.embed(call.asked_with(access.key))
        access.prompt_tokens = embedded.prompt_tokens
        access.finish = "stop"
        if len(embedded.vectors) <= FEW:
            return write(call, embedded)
        return await asyncio.to_thread(write, call, embedded)
