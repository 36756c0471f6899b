"""Server-sent events: what goes on the wire, byte for byte."""

from __future__ import annotations

import json
from collections.abc import Mapping
from json.encoder import encode_basestring
from typing import Any

from deployments.openai.errors import ApiError

Told = tuple[str, Mapping[str, Any]]  # an event's name and its data
DONE = b"data: [DONE]\n\n"
COMMENT = b": alive\n\n"
HEADERS = (
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-cache"),
    (b"x-accel-buffering", b"no"),
)
# Many clients split lines at these too.
LINE_ENDS = {ord(char): f"\\u{ord(char):04x}" for char in "\x85\u2028\u2029"}


def event(data: Any) -> bytes:
    """One whole event of a JSON value."""
    return f"data: {dumps(data)}\n\n".encode()


def named_event(name: str, data: Any) -> bytes:
    """One whole event that also says what it is."""
    return f"event: {name}\ndata: {dumps(data)}\n\n".encode()


def error_event(error: ApiError) -> bytes:
    """The last event of a stream that broke: SDKs raise at it."""
    return event(error.body)


def dumps(data: Any) -> str:
    """JSON as compact as OpenAI's."""
    return json.dumps(data, separators=(",", ":"), ensure_ascii=False).translate(LINE_ENDS)


def quote(text: str) -> str:
    """A JSON string that no client takes for several lines."""
    quoted = encode_basestring(text)
    return quoted if quoted.isascii() else quoted.translate(LINE_ENDS)
