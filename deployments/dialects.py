"""Which dialect a request is answered in."""

from __future__ import annotations

from starlette.datastructures import Headers
from starlette.responses import Response
from starlette.types import Scope

from deployments.anthropic import errors as anthropic
from deployments.openai.errors import ApiError
from deployments.openai.sse import error_event

ANTHROPIC_PATH = "/v1/messages"
SHARED_PATH = "/v1/models"


def is_anthropic(scope: Scope) -> bool:
    """Whether Anthropic's clients ask there: where others do too, they say so."""
    path: str = scope["path"].removeprefix(scope.get("root_path", ""))
    if _at(path, SHARED_PATH):
        return "anthropic-version" in Headers(scope=scope)
    return _at(path, ANTHROPIC_PATH)


def _at(path: str, prefix: str) -> bool:
    return path == prefix or path.startswith(prefix + "/")


def error_response(scope: Scope, error: ApiError, request_id: str) -> Response:
    """The whole HTTP answer."""
    if is_anthropic(scope):
        return anthropic.error_response(error, request_id)
    return error.response()


def last_event(scope: Scope, error: ApiError, request_id: str) -> bytes:
    """What ends a stream when all else failed."""
    if is_anthropic(scope):
        return anthropic.error_event(error, request_id)
    return error_event(error)
