"""Which path leads where, and which of them need a key."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from typing import Any, NamedTuple

from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Route

from configs.settings import AppSettings
from deployments.admin_routes import Admin
from deployments.anthropic.catalog import model_info, model_page
from deployments.anthropic_routes import Messages, MessageTokens
from deployments.batches.desk import Desk
from deployments.batches_routes import Batches, Files
from deployments.chat_page import chat_page_routes
from deployments.dialects import is_anthropic
from deployments.door import ABORT, Door
from deployments.embeddings import Embeddings
from deployments.engines import Served, names_of, origin_of, task_of
from deployments.generation import CHAT, COMPLETIONS, Generation
from deployments.keys import KeyRing, RequireKey
from deployments.openai.catalog import model_entry, model_list, model_not_found
from deployments.openapi.document import document
from deployments.probes import Probes
from deployments.rates.limiter import Limited, RateLimiter
from deployments.responses.kept import Kept
from deployments.responses.store import ResponseStore
from deployments.responses_routes import CreateResponse, KeptResponses, ResponseTokens
from deployments.status import Status
from deployments.tokenization import Tokenization

Engines = Mapping[str, Served]


def routes(
    engines: Engines,
    settings: AppSettings,
    probes: Probes,
    responses: ResponseStore | None,
    batches: Desk | None,
    keys: KeyRing,
    door: Door,
    limiter: RateLimiter | None,
    operators: Operators,
) -> list[BaseRoute]:
    """All routes; without ``responses`` none are kept, without ``batches`` none are run, without a
    ``limiter`` no key has limits.
    """
    tokens = Tokenization(engines, settings)
    models = Models(engines)
    status = Status(probes, door)
    guard = Guard(keys, limiter)
    return [
        *generation_routes(guard, engines, settings),
        guard.limited("/v1/embeddings", Embeddings(engines, settings)),
        *response_routes(guard, engines, settings, Kept(responses), tokens),
        *batch_routes(guard, settings, batches),
        *token_routes(guard, tokens),
        *operators.routes(),
        guard.get("/v1/models", models.list),
        guard.get("/v1/models/{id:path}", models.retrieve),
        guard.get("/metrics", status.metrics),
        Route("/openapi.json", OpenApi(engines, keys=not keys.open).show),
        Route("/health", health),
        Route("/ready", status.ready),
        *(chat_page_routes() if settings.chat_page else []),
    ]


class Operators(NamedTuple):
    """Whose keys open the routes of operators, and what these do."""

    keys: KeyRing
    admin: Admin

    def routes(self) -> list[Route]:
        guard = Guard(self.keys, None)
        return [
            guard.post(ABORT, self.admin.abort),
            guard.post("/reset_prefix_cache", self.admin.reset_prefix_cache),
        ]


class Guard:
    """Makes routes that ask for a key, if there are keys, and some that hold it to its limits."""

    def __init__(self, keys: KeyRing, limiter: RateLimiter | None) -> None:
        self._middleware = [Middleware(RequireKey, keys)]
        self._limiting = [] if limiter is None else [Middleware(Limited, limiter)]

    def get(self, path: str, endpoint: Any) -> Route:
        return Route(path, endpoint, methods=["GET"], middleware=self._middleware)

    def post(self, path: str, endpoint: Any) -> Route:
        return Route(path, endpoint, methods=["POST"], middleware=self._middleware)

    def limited(self, path: str, endpoint: Any) -> Route:
        """One whose endpoint charges what it computes."""
        middleware = [*self._middleware, *self._limiting]
        return Route(path, endpoint, methods=["POST"], middleware=middleware)

    def delete(self, path: str, endpoint: Any) -> Route:
        return Route(path, endpoint, methods=["DELETE"], middleware=self._middleware)


def generation_routes(guard: Guard, engines: Engines, settings: AppSettings) -> list[Route]:
    """OpenAI's chat and completions, Anthropic's messages."""
    return [
        guard.limited("/v1/chat/completions", Generation(CHAT, engines, settings)),
        guard.limited("/v1/completions", Generation(COMPLETIONS, engines, settings)),
        guard.limited("/v1/messages", Messages(engines, settings)),
        guard.post("/v1/messages/count_tokens", MessageTokens(engines, settings).count),
    ]


def response_routes(
    guard: Guard, engines: Engines, settings: AppSettings, kept: Kept, tokens: Tokenization
) -> list[Route]:
    """OpenAI's responses."""
    about = KeptResponses(kept)
    return [
        guard.limited("/v1/responses", CreateResponse(engines, settings, kept)),
        guard.post("/v1/responses/input_tokens", ResponseTokens(tokens, settings, kept).count),
        guard.get("/v1/responses/{id}", about.retrieve),
        guard.delete("/v1/responses/{id}", about.delete),
        guard.post("/v1/responses/{id}/cancel", about.cancel),
        guard.get("/v1/responses/{id}/input_items", about.input_items),
    ]


def batch_routes(guard: Guard, settings: AppSettings, desk: Desk | None) -> list[Route]:
    """OpenAI's files and batches."""
    files, batches = Files(desk, settings), Batches(desk, settings)
    return [
        guard.post("/v1/files", files.create),
        guard.get("/v1/files", files.list),
        guard.get("/v1/files/{id}", files.retrieve),
        guard.delete("/v1/files/{id}", files.delete),
        guard.get("/v1/files/{id}/content", files.content),
        guard.post("/v1/batches", batches.create),
        guard.get("/v1/batches", batches.list),
        guard.get("/v1/batches/{id}", batches.retrieve),
        guard.post("/v1/batches/{id}/cancel", batches.cancel),
    ]


def token_routes(guard: Guard, tokens: Tokenization) -> list[Route]:
    """What tells of tokens and generates none."""
    return [
        guard.post("/tokenize", tokens.tokenize),
        guard.post("/v1/tokenize", tokens.tokenize),
        guard.post("/detokenize", tokens.detokenize),
        guard.post("/v1/detokenize", tokens.detokenize),
        guard.get("/tokenizer_info", tokens.info),
        guard.post("/v1/chat/completions/input_tokens", tokens.count_chat),
    ]


class Models:
    """The catalog's two routes, in two dialects."""

    def __init__(self, engines: Engines) -> None:
        self._engines = engines
        self._created = int(time.time())

    async def list(self, request: Request) -> Response:
        if is_anthropic(request.scope):
            listed = (self._info(name) for name in self._engines)
            return JSONResponse(model_page(listed, request.query_params))
        return JSONResponse(model_list(self._entry(name) for name in self._engines))

    async def retrieve(self, request: Request) -> Response:
        name = request.path_params["id"]
        if name not in self._engines:
            raise model_not_found(name)
        told = self._info if is_anthropic(request.scope) else self._entry
        return JSONResponse(told(name))

    def _entry(self, name: str) -> dict[str, object]:
        engine = self._engines[name]
        context, task = engine.max_context, task_of(engine)
        return model_entry(name, self._created, context, task, origin_of(engine))

    def _info(self, name: str) -> dict[str, object]:
        return model_info(name, self._created, self._engines[name].max_context)


class OpenApi:
    """The document, made once."""

    def __init__(self, engines: Engines, *, keys: bool) -> None:
        generating, embedding = (names_of(engines, task) for task in ("generate", "embed"))
        self._document = json.dumps(document(generating, embedding, keys=keys))

    async def show(self, request: Request) -> Response:
        return Response(self._document, media_type="application/json")


async def health(request: Request) -> Response:
    """The process answers; whether its models do is for ``/ready`` to say."""
    return JSONResponse({"status": "ok"})
