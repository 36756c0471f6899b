"""``/v1/messages`` and ``/v1/messages/count_tokens`` over any engine."""

from __future__ import annotations

from collections.abc import Mapping
from uuid import uuid4

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.types import Receive, Scope, Send

from configs.settings import AppSettings
from deployments.access import access_of
from deployments.anthropic.errors import message_error
from deployments.anthropic.message import MessageTranscript
from deployments.anthropic.request import parse_count, parse_messages
from deployments.anthropic.tools import tells_thoughts
from deployments.body import read_logged_json
from deployments.deadline import within
from deployments.engines import Served, tokenizing_engine
from deployments.transcript import Telling
from models.errors import EngineError


class Messages:
    """The ASGI endpoint that answers with a message."""

    def __init__(self, engines: Mapping[str, Served], settings: AppSettings) -> None:
        self._engines = engines
        self._settings = settings

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request_id = access_of(scope).request_id
        data = await read_logged_json(Request(scope, receive), self._settings)
        unique = uuid4().hex
        try:
            call = parse_messages(data, f"{request_id}-{unique[:12]}")
        except EngineError as error:
            raise message_error(error) from error
        max_tokens = call.requests[0].sampling.max_tokens
        transcript = MessageTranscript(
            f"msg_{unique}",
            call.model,
            max_tokens,
            request_id,
            thoughts=tells_thoughts(data.get("thinking")),
        )
        settings = self._settings
        telling = Telling(call, transcript, settings.request_timeout_s, settings.keep_alive_s)
        await telling.answer(self._engines, scope, receive, send)


class MessageTokens:
    """The endpoint that counts."""

    def __init__(self, engines: Mapping[str, Served], settings: AppSettings) -> None:
        self._engines = engines
        self._settings = settings

    async def count(self, request: Request) -> Response:
        data = await read_logged_json(request, self._settings)
        async with within(self._settings.request_timeout_s, message_error):
            model, prompt = parse_count(data)
            engine = tokenizing_engine(self._engines, model)
            access_of(request.scope).model = model
            token_ids = await engine.tokenize(prompt)
        return JSONResponse({"input_tokens": len(token_ids)})
