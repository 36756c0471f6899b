"""The server's own routes, asked from inside: what answers clients answers the lines of batches.

Their requests are in the background of all models, in the name of whom the batch belongs to, and
wait for their turn as long as it takes.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass, field, replace

from starlette.applications import Starlette
from starlette.datastructures import Headers
from starlette.middleware import Middleware
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from configs.settings import AppSettings
from deployments.access import HEADER, AccessLog, access_of
from deployments.batches.wire import WINDOW_S
from deployments.embeddings import Embeddings
from deployments.engines import Served
from deployments.generation import CHAT, COMPLETIONS, Generation
from deployments.ingress import ANSWERING_ERRORS
from deployments.keys import KeyRing
from deployments.responses.kept import Kept
from deployments.responses_routes import CreateResponse
from deployments.routes import Guard
from models.embedding import Embedded, EmbedRequest, Embeds
from models.engine import LlmEngine
from models.events import Event
from models.request import BACKGROUND, GenerateRequest, User


@dataclass(slots=True)
class Answer:
    """What came back."""

    status: int = 0
    headers: Headers = field(default_factory=Headers)
    body: bytes = b""

    @property
    def request_id(self) -> str:
        return self.headers[HEADER]


class Inside:
    """All routes that a batch may ask."""

    def __init__(self, engines: Mapping[str, Served], settings: AppSettings) -> None:
        patient = settings.model_copy(update={"request_timeout_s": float(WINDOW_S)})
        behind = {name: _in_the_background(engine) for name, engine in engines.items()}
        guard = Guard(KeyRing([]), None)  # whose a batch is was found when it was made
        self._app = Starlette(
            routes=[
                guard.post("/v1/chat/completions", Generation(CHAT, behind, patient)),
                guard.post("/v1/completions", Generation(COMPLETIONS, behind, patient)),
                guard.post("/v1/embeddings", Embeddings(behind, patient)),
                guard.post("/v1/responses", CreateResponse(behind, patient, Kept(None))),
            ],
            middleware=[Middleware(AccessLog), Middleware(_Owned)],
            exception_handlers=ANSWERING_ERRORS,
        )

    async def ask(self, url: str, body: bytes, owner: str) -> Answer:
        """Cancelling it cancels the request."""
        answer = Answer()
        inbox: list[Message] = [{"type": "http.request", "body": body}]

        async def receive() -> Message:
            return inbox.pop() if inbox else await asyncio.Future()

        async def send(message: Message) -> None:
            if message["type"] == "http.response.start":
                answer.status = message["status"]
                answer.headers = Headers(raw=message["headers"])
            else:
                answer.body += message.get("body", b"")

        await self._app(_scope(url, owner), receive, send)
        return answer


class _Owned:
    """Tells whose a request is, in the place of its key."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        access_of(scope).key = scope["state"]["owner"]
        await self._app(scope, receive, send)


def _scope(path: str, owner: str) -> Scope:
    return {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": "POST",
        "scheme": "http",
        "path": path,
        "raw_path": path.encode(),
        "query_string": b"",
        "root_path": "",
        "headers": [(b"content-type", b"application/json")],
        "client": None,
        "server": None,
        "state": {"owner": owner},
    }


def _in_the_background(engine: Served) -> Served:
    if isinstance(engine, Embeds):
        return _Embedder(engine)
    return _Engine(engine)


def _behind(user: User) -> User:
    return User(BACKGROUND, user.key)


class _Engine:
    """A model that generates, asked in the background."""

    def __init__(self, engine: LlmEngine) -> None:
        self.name = engine.name
        self.max_context = engine.max_context
        self._engine = engine

    def generate(self, request: GenerateRequest) -> AsyncGenerator[Event, None]:
        return self._engine.generate(replace(request, user=_behind(request.user)))


class _Embedder:
    """A model that embeds, asked in the background."""

    def __init__(self, embedder: Embeds) -> None:
        self.name = embedder.name
        self.max_context = embedder.max_context
        self._embedder = embedder

    async def embed(self, request: EmbedRequest) -> Embedded:
        return await self._embedder.embed(replace(request, user=_behind(request.user)))
