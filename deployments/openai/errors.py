"""OpenAI's error form: the only place that turns what went wrong into a status and a body."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from pydantic import ValidationError
from starlette.responses import Response

from models.errors import Busy, EngineError, Invalid, TimedOut, TooLong

# What pydantic wanted, in JSON's words.
WANTED = {
    "bool_type": "a boolean",
    "dict_type": "an object",
    "float_type": "a number",
    "int_type": "an integer",
    "list_type": "an array",
    "model_type": "an object",
    "string_type": "a string",
}
LONGEST_MESSAGE, LONGEST_PARAM = 2000, 200  # characters: either may quote what was sent
NO_RETRY = {"x-should-retry": "false"}  # as OpenAI's clients understand it
INTERNAL = "The server had an error while processing your request. Please try again."
NO_REPLICA = "No replica can take the request now. Please try again."


class ApiError(Exception):
    """An answer other than 200, or the event that ends a broken stream."""

    def __init__(
        self,
        status: int,
        message: str,
        *,
        type: str = "invalid_request_error",
        param: str | None = None,
        code: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.message = _cut(message, LONGEST_MESSAGE)
        self.type = type
        self.param = None if param is None else _cut(param, LONGEST_PARAM)
        self.code = code
        self.headers = _retry_advice(status) | dict(headers or {})

    @property
    def body(self) -> dict[str, Any]:
        """The JSON form, ``{"error": …}`` with all of OpenAI's four fields."""
        keys = ("message", "type", "param", "code")
        return {"error": {key: getattr(self, key) for key in keys}}

    def respelled(self, *parts: tuple[str, str]) -> ApiError:
        """The same, told to a dialect that calls these parts of a place by the second name."""
        param = None if self.param is None else _replaced(self.param, parts)
        message = _replaced(self.message, parts)
        return ApiError(self.status, message, type=self.type, param=param, code=self.code)

    def response(self) -> Response:
        """The whole HTTP answer."""
        return Response(json.dumps(self.body), self.status, self.headers, "application/json")


def invalid(message: str, param: str | None = None, code: str | None = None) -> ApiError:
    """The caller's mistake: 400, naming the parameter."""
    return ApiError(400, message, param=param, code=code)


def server_error(
    status: int,
    message: str,
    code: str | None = None,
    headers: Mapping[str, str] | None = None,
) -> ApiError:
    """Our fault."""
    return ApiError(status, message, type="server_error", code=code, headers=headers)


def unavailable(message: str) -> ApiError:
    """Nobody can answer now; asking again soon may help."""
    return server_error(503, message, "service_unavailable", {"retry-after": "1"})


def timed_out(seconds: float) -> ApiError:
    """No event came from the engine for so long; asking again would only wait again."""
    message = f"The model gave no answer for {seconds:g} seconds."
    return server_error(504, message, "timeout", NO_RETRY)


def engine_error(error: EngineError, prompt_param: str) -> ApiError:
    """What an engine raised; ``prompt_param`` is blamed for a prompt that is too long."""
    if isinstance(error, TooLong):
        return invalid(error.message, prompt_param, "context_length_exceeded")
    if isinstance(error, Invalid):
        return invalid(error.message, error.param)
    if isinstance(error, Busy):
        return busy(error.message, error.retry_after)
    if isinstance(error, TimedOut):
        return server_error(504, error.message, "timeout", NO_RETRY)
    return server_error(500, error.message)


def busy(message: str, retry_after_s: float) -> ApiError:
    """No room now: 503 with the wait in whole seconds, and exactly in milliseconds."""
    return server_error(503, message, "server_is_overloaded", retry_after(retry_after_s))


def retry_after(seconds: float) -> dict[str, str]:
    """Headers that tell when to ask again."""
    return {
        "retry-after": str(max(1, math.ceil(seconds))),
        "retry-after-ms": str(max(1, math.ceil(seconds * 1000))),
    }


def validation_error(error: ValidationError) -> ApiError:
    """The first complaint of pydantic, in OpenAI's words."""
    first = error.errors(include_url=False, include_context=False)[0]
    param = spell(first["loc"])
    if first["type"] == "missing":
        return missing(param)
    if first["type"] == "extra_forbidden":
        return unknown(param)
    if first["type"] in WANTED:
        return wrong_type(WANTED[first["type"]], first["input"], param)
    return invalid(f"Invalid value for '{param}': {first['msg']}.", param, "invalid_value")


def missing(param: str) -> ApiError:
    """A parameter that must be given."""
    return invalid(f"Missing required parameter: '{param}'.", param, "missing_required_parameter")


def unknown(param: str) -> ApiError:
    """A parameter that nobody knows."""
    return invalid(f"Unrecognized request argument supplied: {param}", param, "unknown_parameter")


def not_one_of(param: str, known: Iterable[str]) -> ApiError:
    """A value that is none of those that are known."""
    values = ", ".join(f"'{one}'" for one in known)
    message = f"Invalid value for '{param}'. Supported values are: {values}."
    return invalid(message, param, "invalid_value")


def wrong_type(wanted: str, value: Any, param: str) -> ApiError:
    """``wanted`` is what the JSON value should have been, with its article."""
    message = f"Invalid type for '{param}': expected {wanted}, but got {kind(value)} instead."
    return invalid(message, param, "invalid_type")


def spell(location: Sequence[str | int]) -> str:
    """A path into the body: ``("messages", 1, "role")`` is ``messages[1].role``."""
    parts = (f"[{part}]" if isinstance(part, int) else f".{part}" for part in location)
    return "".join(parts).removeprefix(".")


def kind(value: Any) -> str:
    """What a JSON value is, for people."""
    names = {bool: "a boolean", int: "an integer", float: "a number", str: "a string"}
    names |= {list: "an array", dict: "an object", type(None): "null"}
    return names[type(value)]


def _replaced(text: str, parts: Iterable[tuple[str, str]]) -> str:
    for ours, theirs in parts:
        text = text.replace(ours, theirs)
    return text


def _cut(text: str, longest: int) -> str:
    return text if len(text) <= longest else text[: longest - 1] + "…"


def _retry_advice(status: int) -> dict[str, str]:
    return NO_RETRY if 400 <= status < 500 and status != 429 else {}
