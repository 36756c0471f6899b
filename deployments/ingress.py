"""The HTTP application: OpenAI's routes over any ``LlmEngine``. Knows nothing of Ray."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from configs.settings import AppSettings
from deployments.access import AccessLog
from deployments.anthropic_routes import Messages, MessageTokens
from deployments.dialects import error_response
from deployments.generation import CHAT, COMPLETIONS, Generation
from deployments.keys import RequireKey, load_keys
from deployments.openai.catalog import model_entry, model_list, model_not_found
from deployments.openai.errors import ApiError, engine_error
from deployments.openapi.document import document
from deployments.probes import Probes
from deployments.responses.store import MIB, MemoryStore, ResponseStore
from deployments.responses_routes import CreateResponse, Kept, KeptResponses, ResponseTokens
from deployments.status import Status
from deployments.tokenization import Tokenization
from models.engine import LlmEngine
from models.errors import EngineError


def create_app(
    engines: Mapping[str, LlmEngine],
    settings: AppSettings,
    probes: Probes,
    *,
    responses: ResponseStore | None = None,
    answer_request_id: bool = True,
) -> Starlette:
    """The whole application; ``engines`` by the names that clients send.

    ``responses`` keeps the answers of ``/v1/responses`` where several of these applications serve
    one graph; without it each keeps its own. ``answer_request_id=False`` where a proxy puts
    ``x-request-id`` on the answers, as Serve's does. Raises ``ValueError`` or ``OSError`` if the
    API keys cannot be read.
    """
    file = settings.api_keys_file
    keys = load_keys(settings.api_keys, None if file is None else Path(file))
    guard = [Middleware(RequireKey, keys)]
    models = Models(engines)
    status = Status(probes)
    chat = Generation(CHAT, engines, settings)
    completions = Generation(COMPLETIONS, engines, settings)
    tokens = Tokenization(engines, settings)
    kept = Kept(responses or own_store(settings))
    about = KeptResponses(kept)
    asked: dict[str, Any] = {
        "/tokenize": tokens.tokenize,
        "/detokenize": tokens.detokenize,
        "/v1/tokenize": tokens.tokenize,
        "/v1/detokenize": tokens.detokenize,
        "/v1/chat/completions/input_tokens": tokens.count_chat,
        "/v1/responses": CreateResponse(engines, settings, kept),
        "/v1/responses/input_tokens": ResponseTokens(tokens, settings, kept).count,
        "/v1/responses/{id}/cancel": about.cancel,
        "/v1/messages": Messages(engines, settings),
        "/v1/messages/count_tokens": MessageTokens(engines, settings).count,
    }
    app = Starlette(
        routes=[
            Route("/v1/chat/completions", chat, methods=["POST"], middleware=guard),
            Route("/v1/completions", completions, methods=["POST"], middleware=guard),
            *(Route(path, it, methods=["POST"], middleware=guard) for path, it in asked.items()),
            Route("/v1/responses/{id}", about.retrieve, methods=["GET"], middleware=guard),
            Route("/v1/responses/{id}", about.delete, methods=["DELETE"], middleware=guard),
            Route("/v1/responses/{id}/input_items", about.input_items, middleware=guard),
            Route("/v1/models", models.list, middleware=guard),
            Route("/v1/models/{id:path}", models.retrieve, middleware=guard),
            Route("/metrics", status.metrics, middleware=guard),
            Route("/openapi.json", OpenApi(list(engines), keys=not keys.open).show),
            Route("/health", health),
            Route("/ready", status.ready),
        ],
        middleware=[*cross_origin(settings), Middleware(AccessLog, answer_request_id)],
        exception_handlers={
            ApiError: answer_api_error,
            EngineError: answer_engine_error,
            HTTPException: answer_http_error,
        },
    )
    app.router.redirect_slashes = False
    return app


def own_store(settings: AppSettings) -> ResponseStore | None:
    """A store for this process alone, None if nothing is to be kept."""
    if not settings.responses_kept:
        return None
    return MemoryStore(settings.responses_kept, int(settings.responses_kept_mib * MIB))


def cross_origin(settings: AppSettings) -> list[Middleware]:
    """CORS for the origins of the settings. Keys are headers of their own, so no credentials."""
    if not settings.cors_origins:
        return []
    cors = Middleware(
        CORSMiddleware,
        allow_origins=settings.cors_origins,
        allow_methods=["GET", "POST", "DELETE"],
        allow_headers=["*"],
        expose_headers=["x-request-id", "retry-after"],
    )
    return [cors]


class Models:
    """The catalog's two routes."""

    def __init__(self, engines: Mapping[str, LlmEngine]) -> None:
        self._engines = engines
        self._created = int(time.time())

    async def list(self, request: Request) -> Response:
        return JSONResponse(model_list(self._entry(name) for name in self._engines))

    async def retrieve(self, request: Request) -> Response:
        name = request.path_params["id"]
        if name not in self._engines:
            raise model_not_found(name)
        return JSONResponse(self._entry(name))

    def _entry(self, name: str) -> dict[str, object]:
        return model_entry(name, self._created, self._engines[name].max_context)


class OpenApi:
    """The document, made once."""

    def __init__(self, models: Sequence[str], *, keys: bool) -> None:
        self._document = json.dumps(document(models, keys=keys))

    async def show(self, request: Request) -> Response:
        return Response(self._document, media_type="application/json")


async def health(request: Request) -> Response:
    """The process answers; whether its models do is for ``/ready`` to say."""
    return JSONResponse({"status": "ok"})


async def answer_api_error(request: Request, error: Exception) -> Response:
    """The one way out for every error that has a status."""
    assert isinstance(error, ApiError)
    request.state.access.fail(error)
    return error_response(request.scope, error, request.state.access.request_id)


async def answer_engine_error(request: Request, error: Exception) -> Response:
    """A request that was wrong before any engine saw it."""
    assert isinstance(error, EngineError)
    return await answer_api_error(request, engine_error(error, "messages"))


async def answer_http_error(request: Request, error: Exception) -> Response:
    """Unknown paths and wrong methods, in OpenAI's words."""
    assert isinstance(error, HTTPException)
    where = f"{request.method} {request.url.path}"
    messages = {404: f"Invalid URL ({where})", 405: f"Not allowed to {where}."}
    codes = {404: "unknown_url", 405: "method_not_supported"}
    message = messages.get(error.status_code, error.detail)
    code = codes.get(error.status_code)
    described = ApiError(error.status_code, message, code=code, headers=error.headers)
    return await answer_api_error(request, described)
