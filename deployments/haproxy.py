"""What HAProxy says when it has no answer of the Ingress to pass on, in OpenAI's form.

Bytes that are no HTTP it refuses in words of its own, before it looks at any of this.
"""

from __future__ import annotations

import json

from deployments.openai.errors import (
    INTERNAL,
    NO_REPLICA,
    NO_RETRY,
    ApiError,
    server_error,
    unavailable,
)

ERRORS = (
    server_error(500, INTERNAL),
    server_error(502, "The replica that took this request was lost. Please try again."),
    unavailable(NO_REPLICA),
    server_error(504, "The answer took too long to begin.", "timeout", NO_RETRY),
)


def error_lines() -> list[str]:
    """Lines for the ``defaults`` of its configuration; they override an earlier ``errorfile``."""
    return list(map(_line, ERRORS))


def _line(error: ApiError) -> str:
    body = json.dumps(error.body)
    assert "'" not in body  # which would end the text: between these quotes all else is literal
    headers = [f"hdr {name} {value}" for name, value in error.headers.items()]
    said = f"http-error status {error.status} content-type application/json string '{body}'"
    return " ".join([said, *headers])
