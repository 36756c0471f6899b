"""The HTTP application over any ``LlmEngine`` and ``Embeds``. Knows nothing of Ray."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ExceptionHandler

from configs.settings import AppSettings, RateLimits
from deployments.access import Access, AccessLog
from deployments.admin_routes import Admin
from deployments.batches.desk import Desk
from deployments.controls import Controls
from deployments.dialects import error_response
from deployments.door import Door, Entrance
from deployments.engines import Served
from deployments.keys import KeyRing, load_keys
from deployments.openai.errors import ApiError, engine_error
from deployments.probes import Probes
from deployments.rates.counts import Counts, MemoryCounts
from deployments.rates.limiter import RateLimiter
from deployments.rates.refusals import Refusals
from deployments.rates.told import EXPOSED
from deployments.responses.store import MIB, MemoryStore, ResponseStore
from deployments.routes import Operators, routes
from models.errors import EngineError


def create_app(
    engines: Mapping[str, Served],
    settings: AppSettings,
    probes: Probes,
    *,
    responses: ResponseStore | None = None,
    batches: Desk | None = None,
    controls: Controls | None = None,
    door: Door | None = None,
    counts: Counts | None = None,
    refusals: Refusals | None = None,
    answer_request_id: bool = True,
    describe: Callable[[Access], None] | None = None,
) -> Starlette:
    """The whole application; ``engines`` by the names that clients send.

    ``responses`` keeps the answers of ``/v1/responses`` where several of these applications serve
    one graph, and ``counts`` what keys use; without them each has its own. ``batches`` keeps files
    and runs batches; without it there are none. ``controls`` are for operators with a key of their
    own; ``refusals`` notes whom their limits refused.
    Whoever closes the ``door`` lets in no more requests.
    ``answer_request_id=False`` where the server puts ``x-request-id`` on the answers, as Serve's
    does; ``describe`` is told of each request at its end.
    Raises ``ValueError`` or ``OSError`` if the API keys cannot be read.
    """
    file = settings.api_keys_file
    keys = load_keys(settings.api_keys, None if file is None else Path(file))
    door = door or Door()
    limiter = rate_limiter(settings.rate_limits, keys, counts, refusals or Refusals())
    admin = operators(settings, controls)
    store = responses or own_store(settings)
    app = Starlette(
        routes=routes(engines, settings, probes, store, batches, keys, door, limiter, admin),
        middleware=[
            *cross_origin(settings),
            Middleware(AccessLog, answer_request_id, describe),
            Middleware(Entrance, door),
        ],
        exception_handlers=ANSWERING_ERRORS,
    )
    app.router.redirect_slashes = False
    return app


def operators(settings: AppSettings, controls: Controls | None) -> Operators:
    """Nobody, unless the settings name a file of their keys."""
    if settings.admin_keys_file is None:
        return Operators(KeyRing([]), Admin(None, settings))
    return Operators(load_keys([], Path(settings.admin_keys_file)), Admin(controls, settings))


def own_store(settings: AppSettings) -> ResponseStore | None:
    """A store for this process alone, None if nothing is to be kept."""
    if not settings.responses_kept:
        return None
    return MemoryStore(settings.responses_kept, int(settings.responses_kept_mib * MIB))


def rate_limiter(
    settings: RateLimits, keys: KeyRing, counts: Counts | None, refusals: Refusals
) -> RateLimiter | None:
    """None without limits."""
    if not settings.any_limits:
        return None
    return RateLimiter(settings, keys.names, counts or own_counts(settings), refusals)


def own_counts(settings: RateLimits) -> Counts:
    """Where the settings say, else of this process alone."""
    if settings.storage is None:
        return MemoryCounts()
    from deployments.rates.redis_counts import RedisCounts

    return RedisCounts(settings.storage)


def cross_origin(settings: AppSettings) -> list[Middleware]:
    """CORS for the origins of the settings. Keys are headers of their own, so no credentials."""
    if not settings.cors_origins:
        return []
    limits = EXPOSED if settings.rate_limits.any_limits else ()
    cors = Middleware(
        CORSMiddleware,
        allow_origins=settings.cors_origins,
        allow_methods=["GET", "POST", "DELETE"],
        allow_headers=["*"],
        expose_headers=["x-request-id", "retry-after", *limits],
    )
    return [cors]


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


ANSWERING_ERRORS: Mapping[Any, ExceptionHandler] = {
    ApiError: answer_api_error,
    EngineError: answer_engine_error,
    HTTPException: answer_http_error,
}
