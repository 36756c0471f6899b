"""The HTTP application: OpenAI's routes over any ``LlmEngine`` and ``Embeds``. Knows no Ray."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from configs.settings import AppSettings
from deployments.access import AccessLog
from deployments.embeddings import Embeddings
from deployments.engines import Served, task_of
from deployments.generation import CHAT, COMPLETIONS, Generation
from deployments.keys import RequireKey, load_keys
from deployments.openai.catalog import model_entry, model_list, model_not_found
from deployments.openai.errors import ApiError, engine_error
from deployments.probes import Probes
from deployments.status import Status
from models.errors import EngineError


def create_app(
    engines: Mapping[str, Served],
    settings: AppSettings,
    probes: Probes,
    *,
    answer_request_id: bool = True,
) -> Starlette:
    """The whole application; ``engines`` by the names that clients send.

    ``answer_request_id=False`` where a proxy puts ``x-request-id`` on the answers, as Serve's
    does. Raises ``ValueError`` or ``OSError`` if the API keys cannot be read.
    """
    file = settings.api_keys_file
    keys = load_keys(settings.api_keys, None if file is None else Path(file))
    guard = [Middleware(RequireKey, keys)]
    models = Models(engines)
    status = Status(probes)
    chat = Generation(CHAT, engines, settings)
    completions = Generation(COMPLETIONS, engines, settings)
    embeddings = Embeddings(engines, settings)
    app = Starlette(
        routes=[
            Route("/v1/chat/completions", chat, methods=["POST"], middleware=guard),
            Route("/v1/completions", completions, methods=["POST"], middleware=guard),
            Route("/v1/embeddings", embeddings, methods=["POST"], middleware=guard),
            Route("/v1/models", models.list, middleware=guard),
            Route("/v1/models/{id:path}", models.retrieve, middleware=guard),
            Route("/metrics", status.metrics, middleware=guard),
            Route("/health", health),
            Route("/ready", status.ready),
        ],
        middleware=[Middleware(AccessLog, answer_request_id)],
        exception_handlers={
            ApiError: answer_api_error,
            EngineError: answer_engine_error,
            HTTPException: answer_http_error,
        },
    )
    app.router.redirect_slashes = False
    return app


class Models:
    """The catalog's two routes."""

    def __init__(self, engines: Mapping[str, Served]) -> None:
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
        engine = self._engines[name]
        return model_entry(name, self._created, engine.max_context, task_of(engine))


async def health(request: Request) -> Response:
    """The process answers; whether its models do is for ``/ready`` to say."""
    return JSONResponse({"status": "ok"})


async def answer_api_error(request: Request, error: Exception) -> Response:
    """The one way out for every error that has a status."""
    assert isinstance(error, ApiError)
    request.state.access.fail(error)
    return error.response()


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
