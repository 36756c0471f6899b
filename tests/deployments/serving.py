"""The application over mock engines, and ways to talk to it."""

from __future__ import annotations

import asyncio
import json
import socket
import struct
import threading
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import httpx
import uvicorn
from starlette.applications import Starlette
from starlette.types import Message

from configs.settings import AppSettings, ModelSettings
from deployments.engines import Served
from deployments.ingress import create_app
from deployments.probes import ModelState
from models.embedding import Embedded, EmbedRequest
from models.errors import Invalid
from models.events import Event
from models.mock import MockEngine
from models.request import GenerateRequest, Prompt
from models.text.inputs import encode_inputs
from models.text.loading import byte_pipeline

CHAT = "/v1/chat/completions"
COMPLETIONS = "/v1/completions"
PATIENCE_S = 0.002
BYTES = byte_pipeline()
HELLO = [{"role": "user", "content": "Hello there"}]


class TokenizingMock(MockEngine):
    """One whose tokenizer may be asked, though it is not what it counts by."""

    async def tokenize(self, prompt: Prompt, *, special_tokens: bool = True) -> tuple[int, ...]:
        return BYTES.tokenize(prompt, special_tokens=special_tokens)

    async def token_strings(self, token_ids: Sequence[int]) -> list[str]:
        return BYTES.token_strings(token_ids)

    async def tokenizer_info(self) -> Mapping[str, Any]:
        return BYTES.tokenizer_info()

    async def detokenize(self, token_ids: Sequence[int]) -> str:
        return BYTES.detokenize(token_ids)


class Counting:
    """A model whose vectors are the numbers of tokens."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.max_context = 64

    async def embed(self, request: EmbedRequest) -> Embedded:
        inputs = encode_inputs(BYTES, request, self.max_context)
        if request.dimensions not in (None, 1):
            raise Invalid("This model's vectors have one dimension.", "dimensions")
        vectors = (struct.pack("<f", len(ids)) for ids in inputs.token_ids)
        return Embedded(tuple(vectors), inputs.tokens)


class Reciting:
    """An engine that answers everybody with the same events."""

    def __init__(self, name: str, *events: Event) -> None:
        self.name = name
        self.max_context = 4096
        self.requests: list[GenerateRequest] = []
        self._events = events

    async def generate(self, request: GenerateRequest) -> AsyncGenerator[Event, None]:
        self.requests.append(request)
        for event in self._events:
            yield event


class Probes:
    """What the graph would answer; ``problems`` by model."""

    def __init__(self, problems: Mapping[str, str] | None = None) -> None:
        self.problems = {"mock": ""} if problems is None else problems

    async def ready(self) -> Mapping[str, ModelState]:
        return {name: ModelState(one, {"device": "cpu"}) for name, one in self.problems.items()}

    async def metrics(self) -> str:
        return "# TYPE stepserve_requests counter\nstepserve_requests_total 1.0\n"


def make_settings(*engines: Served, **settings: Any) -> AppSettings:
    models = [ModelSettings(name=one.name, factory="models.mock:MockEngine") for one in engines]
    return AppSettings(models=models, **settings)


def make_app(*engines: Served, probes: Probes | None = None, **settings: Any) -> Starlette:
    engines = engines or (MockEngine("mock"),)
    given = make_settings(*engines, **settings)
    return create_app({one.name: one for one in engines}, given, probes or Probes())


def client(app: Starlette) -> httpx.AsyncClient:
    """Its answers come whole, streams too."""
    return httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://test")


async def post(app: Starlette, path: str, body: Any, **headers: str) -> httpx.Response:
    async with client(app) as http:
        return await http.post(path, json=body, headers=headers)


async def chat(app: Starlette, **body: Any) -> httpx.Response:
    return await post(app, CHAT, {"model": "mock", "messages": HELLO, **body})


async def complete(app: Starlette, **body: Any) -> httpx.Response:
    return await post(app, COMPLETIONS, {"model": "mock", "prompt": "Once upon", **body})


def events(text: str) -> list[Any]:
    """The data of each event; the last of a whole stream is ``[DONE]``."""
    assert text.endswith("\n\n")
    lines = text[:-2].split("\n\n")
    assert all(line.startswith("data: ") for line in lines)
    return [_loads(line.removeprefix("data: ")) for line in lines]


def _loads(data: str) -> Any:
    return data if data == "[DONE]" else json.loads(data)


class Exchange:
    """One HTTP request driven by hand: its client may read write by write, and go away.

    After ``reads`` messages the client takes no more, and the server's writes wait.
    """

    def __init__(
        self, app: Starlette, path: str, body: Any, reads: int = 10**6, key: str = ""
    ) -> None:
        self._room = asyncio.Semaphore(reads)
        self._inbox: asyncio.Queue[Message] = asyncio.Queue()
        self._sent: asyncio.Queue[Message] = asyncio.Queue()
        self._inbox.put_nowait({"type": "http.request", "body": json.dumps(body).encode()})
        scope = scope_of(path)
        scope["headers"].append((b"authorization", f"Bearer {key}".encode()))
        self.task = asyncio.create_task(app(scope, self._inbox.get, self._send))

    async def _send(self, message: Message) -> None:
        await self._room.acquire()
        self._sent.put_nowait(message)

    async def next(self) -> Message:
        """The next message of the answer."""
        return await asyncio.wait_for(self._sent.get(), 5)

    async def leave(self) -> None:
        """Goes away, and waits until the server is done with it."""
        self._inbox.put_nowait({"type": "http.disconnect"})
        await asyncio.wait_for(self.task, 5)

    @property
    def unread(self) -> int:
        """Messages of the answer that nobody has read."""
        return self._sent.qsize()


def scope_of(path: str) -> dict[str, Any]:
    """The ASGI scope of a POST."""
    return {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.3"},
        "http_version": "1.1",
        "method": "POST",
        "scheme": "http",
        "path": path,
        "raw_path": path.encode(),
        "query_string": b"",
        "root_path": "",
        "headers": [(b"content-type", b"application/json")],
        "client": ("127.0.0.1", 1),
        "server": ("127.0.0.1", 80),
    }


@contextmanager
def listening(app: Starlette) -> Iterator[str]:
    """Serves the application on a free port of this machine; gives its URL."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()  # so that nobody comes too early
        config = uvicorn.Config(app, log_level="warning", lifespan="off")
        server = uvicorn.Server(config)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
        thread.start()
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            server.should_exit = True
            thread.join()


async def eventually(condition: Callable[[], object], seconds: float = 5.0) -> None:
    """Waits for the condition to hold."""
    for _ in range(int(seconds / PATIENCE_S)):
        if condition():
            return
        await asyncio.sleep(PATIENCE_S)
    raise AssertionError("It never happened.")
