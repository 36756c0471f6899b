"""Around every request: its id, its log line, and an answer when all else failed."""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from uuid import uuid4

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from deployments.dialects import error_response, is_anthropic, last_event
from deployments.openai.errors import INTERNAL, ApiError, server_error

if TYPE_CHECKING:  # Serve's proxies import this, and need none of that
    from deployments.rates.allowance import Allowance

logger = logging.getLogger("stepserve")

HEADER = "x-request-id"
ANTHROPICS_HEADER = "request-id"
MAX_ID = 128
MAX_PATH = 200
CLIENT_CLOSED = 499  # for the log only
QUIET = ("/health", "/ready", "/metrics")


@dataclass(slots=True)
class Access:
    """What the log tells of one request. Times in seconds, counts in tokens.

    ``key``, the opaque name of the API key it came with, is not logged; that of a key with limits,
    whose ``allowance`` it takes from, is. ``named`` is what its body calls it.
    """

    request_id: str
    route: str
    key: str = ""
    began: float = field(default_factory=time.perf_counter)
    status: int | None = None
    streaming: bool = False
    model: str | None = None
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    first_token_s: float | None = None
    finish: str | None = None
    error: str | None = None
    allowance: Allowance | None = None
    named: str | None = None

    @property
    def ids(self) -> frozenset[str]:
        """By which an operator may speak of the request."""
        return frozenset((self.request_id, self.named or self.request_id))

    @property
    def counts_tokens(self) -> bool:
        """Whether tokens count before their choice is finished."""
        return self.allowance is not None and self.allowance.tokens_per_minute is not None

    def fail(self, error: ApiError) -> None:
        """Notes an error; a caller's mistake by its code alone, it may quote what was sent."""
        self.finish = "error"
        self.error = error.message if error.status >= 500 else error.code or error.type

    def first_token(self) -> None:
        """Marks the time of the first token."""
        self.first_token_s = time.perf_counter() - self.began

    def line(self) -> str:
        """The log line, as ``key=value`` pairs."""
        pairs = {
            "id": self.request_id,
            "model": self.model,
            "route": self.route,
            "status": self.status,
            "prompt_tokens": self.prompt_tokens,
            "completion_tokens": self.completion_tokens,
            "first_token_s": _seconds(self.first_token_s),
            "total_s": _seconds(time.perf_counter() - self.began),
            "finish": self.finish,
            "error": self.error,
        }
        if self.allowance is not None:
            pairs["key"] = self.allowance.key
        return " ".join(f"{key}={_field(one)}" for key, one in pairs.items())


def access_of(scope: Scope) -> Access:
    """The record of the request that is being answered."""
    access: Access = scope["state"]["access"]
    return access


class AccessLog:
    """The outermost layer. ``answer_id`` puts the id on the answer, unless the server does.

    ``describe`` is called with what is known of each request at its end.
    """

    def __init__(
        self,
        app: ASGIApp,
        answer_id: bool = True,
        describe: Callable[[Access], None] | None = None,
    ) -> None:
        self._app = app
        self._answer_id = answer_id
        self._describe = describe

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        access = Access(
            request_id(Headers(scope=scope).get(HEADER)),
            f"{scope['method']}:{scope['path'][:MAX_PATH]}",
        )
        scope.setdefault("state", {})["access"] = access

        async def send_with_id(message: Message) -> None:
            if message["type"] == "http.response.start":
                self._start(access, message, scope)
            try:
                await send(message)
            except OSError:
                raise ClientDisconnect from None

        try:
            await self._app(scope, receive, send_with_id)
        except ClientDisconnect:
            _left(access)
        except asyncio.CancelledError:
            _left(access)
            raise
        except Exception:
            logger.exception("id=%s failed unexpectedly", access.request_id)
            await tell_late(server_error(500, INTERNAL), scope, receive, send_with_id)
        finally:
            level = logging.DEBUG if scope["path"] in QUIET else logging.INFO
            logger.log(level, "%s", access.line())
            if self._describe is not None:
                self._describe(access)

    def _start(self, access: Access, message: Message, scope: Scope) -> None:
        access.status = message["status"]
        headers = MutableHeaders(scope=message)
        access.streaming = headers.get("content-type", "").startswith("text/event-stream")
        if self._answer_id:
            headers[HEADER] = access.request_id
        if anthropic := is_anthropic(scope):
            headers[ANTHROPICS_HEADER] = access.request_id
        if access.allowance is not None:
            headers.update(dict(access.allowance.headers(anthropic=anthropic)))


def request_id(given: str | None) -> str:
    """The client's own id if it is short and printable, else a new one."""
    sane = given is not None and given.isascii() and given.isprintable()
    return given if given and sane and len(given) <= MAX_ID else f"req_{uuid4().hex}"


async def tell_late(error: ApiError, scope: Scope, receive: Receive, send: Send) -> None:
    """Of a request whose own code cannot: as its whole answer, or as the last event of a stream."""
    access = access_of(scope)
    access.fail(error)
    if access.status is None:
        await error_response(scope, error, access.request_id)(scope, receive, send)
    elif access.streaming:
        await send(
            {"type": "http.response.body", "body": last_event(scope, error, access.request_id)}
        )


def _left(access: Access) -> None:
    access.status = access.status or CLIENT_CLOSED
    access.finish = "cancelled"


def _field(value: object) -> str:
    """One word, whatever clients have put into it: a log line must stay one line."""
    text = "-" if value is None else str(value)
    plain = text.isascii() and text.isprintable() and not set(text) & set(' "=')
    return text if plain and text else json.dumps(text)


def _seconds(value: float | None) -> str | None:
    return None if value is None else f"{value:.4f}"
