"""Anthropic's error form."""

from __future__ import annotations

from typing import Any

from starlette.responses import Response

from deployments.openai.errors import ApiError, engine_error, invalid
from deployments.openai.sse import dumps, named_event
from models.errors import EngineError, TooLong

TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    408: "timeout_error",
    413: "request_too_large",
    429: "rate_limit_error",
    503: "overloaded_error",
    504: "timeout_error",
}
NO_THREADS = "thread_unsupported_request"  # in ``details``: SDKs go on without threads then
OVERLOADED = 529  # Anthropic's own status for what is 503 elsewhere


def error_body(error: ApiError, request_id: str) -> dict[str, Any]:
    """What is wrong is told by the message, which names the parameter."""
    other = "api_error" if error.status >= 500 else "invalid_request_error"
    described: dict[str, Any] = {
        "type": TYPES.get(error.status, other),
        "message": error.message,
    }
    if error.code == NO_THREADS:
        described["details"] = {"error_code": NO_THREADS}
    return {"type": "error", "error": described, "request_id": request_id}


def error_response(error: ApiError, request_id: str) -> Response:
    """The whole HTTP answer."""
    status = OVERLOADED if error.status == 503 else error.status
    body = dumps(error_body(error, request_id))
    return Response(body, status, error.headers, "application/json")


def error_event(error: ApiError, request_id: str) -> bytes:
    """The last event of a stream that broke: SDKs raise at it."""
    return named_event("error", error_body(error, request_id))


def message_error(error: EngineError) -> ApiError:
    """What an engine raised; clients know a prompt that is too long by these words."""
    if isinstance(error, TooLong):
        message = f"prompt is too long: {error.prompt_tokens} tokens > {error.max_context} maximum"
        return invalid(message, "messages", "context_length_exceeded")
    return engine_error(error, "messages")
