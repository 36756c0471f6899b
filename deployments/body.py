"""Reads the JSON of a request: bounded, valid, an object."""

from __future__ import annotations

import asyncio
import json
import logging
import math
from collections.abc import Iterable
from functools import partial
from typing import Any, NoReturn

from starlette.requests import Request

from configs.settings import AppSettings
from deployments.access import access_of
from deployments.openai.errors import ApiError, invalid, kind

logger = logging.getLogger("stepserve")

MOST_NESTED = 100
TOO_DEEP = f"it is nested more than {MOST_NESTED} levels deep"
MOST_DIGITS = 4300  # that Python reads
SHOWN = 40  # characters of a wrong number in a message


async def read_logged_json(request: Request, settings: AppSettings) -> dict[str, Any]:
    """As ``read_json``; the body is logged if the settings say so."""
    data = await read_json(request, settings.max_body_bytes, settings.body_timeout_s)
    if settings.log_prompts:
        logger.info("id=%s body=%s", access_of(request.scope).request_id, json.dumps(data))
    return data


async def read_json(request: Request, max_bytes: int, timeout_s: float) -> dict[str, Any]:
    """Raises ``ApiError`` (413, 408 or 400), or ``ClientDisconnect``."""
    try:
        async with asyncio.timeout(timeout_s):
            body = await _read(request, max_bytes)
    except TimeoutError:
        raise too_slow(timeout_s) from None
    return parse_json(body)


async def _read(request: Request, max_bytes: int) -> bytes:
    length = request.headers.get("content-length", "")
    if length.isdecimal() and int(length[:19]) > max_bytes:
        raise too_large(max_bytes)
    body = bytearray()
    async for part in request.stream():
        body += part
        if len(body) > max_bytes:
            raise too_large(max_bytes)
    return bytes(body)


def parse_json(body: bytes) -> dict[str, Any]:
    """An object of valid Unicode, without NaN or infinities; else raises ``ApiError``."""
    try:
        text = body.decode("utf-8-sig")
        value = _loaded(text)
        _check_surrogates(text, value)
        _check_depth(value)
    except ValueError as error:
        raise invalid(f"We could not parse the JSON body of your request: {error}") from None
    if not isinstance(value, dict):
        raise invalid(f"The JSON body must be an object, not {kind(value)}.")
    return value


def _loaded(text: str) -> Any:
    read = partial(json.loads, text, parse_constant=_refuse_constant, parse_float=_finite)
    try:
        return read()
    except RecursionError:
        raise ValueError(TOO_DEEP) from None
    except json.JSONDecodeError:
        raise
    except ValueError:  # perhaps Python's of a long number: to look at each of them takes long
        return read(parse_int=_whole)


def _check_surrogates(text: str, value: Any) -> None:
    if "\\ud" in text or "\\uD" in text:
        json.dumps(value, ensure_ascii=False).encode()


def _check_depth(value: Any) -> None:
    """Others copy, pickle and print what comes in, each with a stack of its own."""
    level = [value]
    for _ in range(MOST_NESTED):
        level = [inner for outer in level for inner in _inner(outer)]
        if not level:
            return
    raise ValueError(TOO_DEEP)


def _inner(value: Any) -> Iterable[Any]:
    if isinstance(value, dict):
        return value.values()
    return value if isinstance(value, list) else ()


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


def _whole(text: str) -> int:
    if len(text) > MOST_DIGITS:
        raise ValueError(f"the number {text[:SHOWN]}… of {len(text)} characters is too long")
    return int(text)


def _finite(text: str) -> float:
    """What is infinite when read could not be written as JSON again."""
    value = float(text)
    if math.isinf(value):
        raise ValueError(f"the number {text[:SHOWN]} is too large")
    return value


def too_slow(timeout_s: float) -> ApiError:
    """The rest of the body is not read, so the connection ends."""
    message = f"The request body did not arrive within {timeout_s:g} seconds."
    return ApiError(408, message, code="request_timeout", headers={"connection": "close"})


def too_large(max_bytes: int) -> ApiError:
    """413, of whatever a body may hold at most."""
    message = f"The request body is larger than {max_bytes} bytes."
    return ApiError(413, message, code="request_too_large")
