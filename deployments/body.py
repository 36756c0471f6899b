"""Reads the JSON of a request: bounded, valid, an object."""

from __future__ import annotations

import json
import logging
from typing import Any, NoReturn

from starlette.requests import Request

from configs.settings import AppSettings
from deployments.access import access_of
from deployments.openai.errors import ApiError, invalid, kind

logger = logging.getLogger("stepserve")


async def read_logged_json(request: Request, settings: AppSettings) -> dict[str, Any]:
    """As ``read_json``; the body is logged if the settings say so."""
    data = await read_json(request, settings.max_body_bytes)
    if settings.log_prompts:
        logger.info("id=%s body=%s", access_of(request.scope).request_id, json.dumps(data))
    return data


async def read_json(request: Request, max_bytes: int) -> dict[str, Any]:
    """Raises ``ApiError`` (413 or 400), or ``ClientDisconnect``."""
    return parse_json(await _read(request, max_bytes))


async def _read(request: Request, max_bytes: int) -> bytes:
    length = request.headers.get("content-length", "")
    if length.isdecimal() and int(length[:19]) > max_bytes:
        raise _too_large(max_bytes)
    body = bytearray()
    async for part in request.stream():
        body += part
        if len(body) > max_bytes:
            raise _too_large(max_bytes)
    return bytes(body)


def parse_json(body: bytes) -> dict[str, Any]:
    """An object of valid Unicode, without NaN or infinities; else raises ``ApiError``."""
    try:
        text = body.decode("utf-8-sig")
        value = json.loads(text, parse_constant=_refuse_constant)
        _check_surrogates(text, value)
    except (ValueError, RecursionError) as error:
        raise invalid(f"We could not parse the JSON body of your request: {error}") from None
    if not isinstance(value, dict):
        raise invalid(f"The JSON body must be an object, not {kind(value)}.")
    return value


def _check_surrogates(text: str, value: Any) -> None:
    if "\\ud" in text or "\\uD" in text:
        json.dumps(value, ensure_ascii=False).encode()


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


def _too_large(max_bytes: int) -> ApiError:
    message = f"The request body is larger than {max_bytes} bytes."
    return ApiError(413, message, code="request_too_large")
