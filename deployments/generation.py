"""One generation over HTTP, from its body to the last byte of its answer."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Mapping
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from configs.settings import AppSettings
from deployments.access import Access, access_of
from deployments.body import read_logged_json
from deployments.connection import while_connected
from deployments.engines import Served, engine_named
from deployments.event_stream import EventStream
from deployments.openai import chat, completions
from deployments.openai.call import Call
from deployments.openai.chat_form import ChatForm
from deployments.openai.completion_form import CompletionForm
from deployments.openai.errors import engine_error
from deployments.openai.form import Form, Heading, Shown
from deployments.rates.charging import charge_generation
from deployments.reply import StreamedAnswer, whole_answer
from deployments.streams import generate
from models.engine import LlmEngine
from models.errors import EngineError


@dataclass(frozen=True, slots=True)
class Dialect:
    """One of OpenAI's two generation routes."""

    id_prefix: str
    parse: Callable[[Mapping[str, Any], str], Call]
    form: Callable[[Heading, Shown], Form]


CHAT = Dialect("chatcmpl-", chat.parse, ChatForm)
COMPLETIONS = Dialect("cmpl-", completions.parse, CompletionForm)


class Generation:
    """The ASGI endpoint of a dialect."""

    def __init__(
        self, dialect: Dialect, engines: Mapping[str, Served], settings: AppSettings
    ) -> None:
        self._dialect = dialect
        self._engines = engines
        self._settings = settings

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        access = access_of(scope)
        data = await read_logged_json(Request(scope, receive), self._settings)
        unique = uuid4().hex
        call = self._dialect.parse(data, f"{access.request_id}-{unique[:12]}")
        engine = engine_named(self._engines, call.model)
        access.model, access.named = call.model, call.name
        form = self._form(call, engine, unique)
        response = await while_connected(receive, self._answer(call, engine, form, access, send))
        if response is not None:
            await response(scope, receive, send)

    def _form(self, call: Call, engine: LlmEngine, unique: str) -> Form:
        id = self._dialect.id_prefix + unique
        heading = Heading(id, int(time.time()), call.model, fingerprint(engine))
        return self._dialect.form(heading, call.shown)

    async def _answer(
        self, call: Call, engine: LlmEngine, form: Form, access: Access, send: Send
    ) -> Response | None:
        settings = self._settings
        try:
            if access.allowance is not None:
                await charge_generation(access.allowance, call.requests, engine)
            requests = call.asked_with(access.key, counted=access.counts_tokens)
            async with aclosing(generate(engine, requests, settings.request_timeout_s)) as events:
                if not call.stream:
                    return await whole_answer(call, events, form, access)
                with EventStream(send, settings.keep_alive_s) as stream:
                    await StreamedAnswer(call, form, access, stream).run(events)
                return None
        except EngineError as error:
            raise engine_error(error, form.prompt_param) from error


def fingerprint(engine: LlmEngine) -> str:
    """Differs between models."""
    return "fp_" + hashlib.sha256(engine.name.encode()).hexdigest()[:10]
