"""The layer around Serve's own HTTP servers: what they refuse, in the form of its dialect.

They are those of its proxies and of the replicas of the Ingress. Serve calls ``layers`` by the name
that it is told in ``RAY_SERVE_HTTP_PROXY_CALLBACK_IMPORT_PATH``.
"""

from __future__ import annotations

from starlette.datastructures import Headers
from starlette.middleware import Middleware
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from deployments.access import HEADER, request_id
from deployments.dialects import error_response
from deployments.openai.errors import (
    INTERNAL,
    NO_REPLICA,
    ApiError,
    invalid,
    server_error,
    unavailable,
)

SERVES_OWN = "/-/"  # what load balancers ask Serve itself, below this path
PLAIN = "text/plain"  # as Serve refuses, and the application never does with one of these
REFUSALS = {
    404: unavailable(
        "Nothing answers at this path: the server is starting or stopping, or has no such path."
    ),
    408: ApiError(408, "The time for this request was over before its answer began."),
    503: unavailable(NO_REPLICA),
}
UNREADABLE = invalid("A header of the request is not UTF-8.")
SILENT = server_error(500, INTERNAL)


def layers() -> list[Middleware]:
    """What Serve is to put around its servers."""
    return [Middleware(Front)]


class Front:
    """The outermost layer of all."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"].startswith(SERVES_OWN):
            await self._app(scope, receive, send)
            return
        answer = _Answer(scope, receive, send)
        try:
            await self._app(scope, receive, answer.send)
        except UnicodeDecodeError:
            if answer.begun:
                raise
            await answer.refuse(UNREADABLE)
        if not answer.begun:
            await answer.refuse(SILENT)


class _Answer:
    """One answer on its way out."""

    def __init__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self._to = scope, receive, send
        self._send = send
        self._refused = False
        self.begun = False

    async def send(self, message: Message) -> None:
        if self.begun:
            if not self._refused:
                await self._send(message)
        elif (error := _refusal(message)) is not None:
            self._refused = True
            await self.refuse(error)
        else:
            self.begun = True
            await self._send(message)

    async def refuse(self, error: ApiError) -> None:
        self.begun = True
        scope, receive, send = self._to
        unique = request_id(Headers(scope=scope).get(HEADER))
        response = error_response(scope, error, unique)
        response.headers[HEADER] = unique
        await response(scope, receive, send)


def _refusal(message: Message) -> ApiError | None:
    error = REFUSALS.get(message.get("status", 0))
    if error is None:
        return None
    plain = Headers(raw=message["headers"]).get("content-type", "").startswith(PLAIN)
    return error if plain else None
