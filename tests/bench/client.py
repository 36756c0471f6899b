"""Streaming completions over a bare socket: a load generator that costs next to nothing a token."""

from __future__ import annotations

import asyncio
import json
import ssl
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, cast
from urllib.parse import urlsplit

from tests.bench.sse import Response, Stream

Ask = Callable[[str, int, Stream], Awaitable[None]]  # prompt, most tokens; fills the stream


@dataclass(frozen=True)
class Endpoint:
    """Where an OpenAI server is, and what it is to be asked.

    ``url`` goes up to ``/v1``, or up to where that belongs. ``body`` goes over the request's own
    keys; None there removes one. With ``chat`` the prompt is a user's message.
    """

    url: str
    model: str
    api_key: str = ""
    chat: bool = False
    body: Mapping[str, Any] = field(default_factory=dict)

    def request(self, prompt: str, tokens: int) -> bytes:
        """The bytes of one request on a connection of its own."""
        host = urlsplit(self.url).netloc
        data = json.dumps(self.json(prompt, tokens)).encode()
        lines = [
            f"POST {self.path} HTTP/1.1",
            f"Host: {host}",
            "Content-Type: application/json",
            "Accept: text/event-stream",
            "Connection: close",
            f"Content-Length: {len(data)}",
        ]
        if self.api_key:
            lines.append(f"Authorization: Bearer {self.api_key}")
        return "\r\n".join([*lines, "", ""]).encode() + data

    @property
    def path(self) -> str:
        base = urlsplit(self.url).path.rstrip("/").removesuffix("/v1")
        return f"{base}/v1/{'chat/completions' if self.chat else 'completions'}"

    def json(self, prompt: str, tokens: int) -> dict[str, Any]:
        asked = {"messages": [{"role": "user", "content": prompt}]} if self.chat else {}
        body: dict[str, Any] = {
            "model": self.model,
            **(asked or {"prompt": prompt}),
            "max_tokens": tokens,
            "temperature": 0,
            "stream": True,
            "stream_options": {"include_usage": True},
            "ignore_eos": True,
            **self.body,
        }
        return {key: value for key, value in body.items() if value is not None}


def over_http(endpoint: Endpoint) -> Ask:
    """Each request on a connection of its own, as most clients' first one is."""
    parts = urlsplit(endpoint.url)
    secure = ssl.create_default_context() if parts.scheme == "https" else None
    host = parts.hostname or ""
    port = parts.port or (443 if secure else 80)

    async def ask(prompt: str, tokens: int, stream: Stream) -> None:
        request = endpoint.request(prompt, tokens)
        loop = asyncio.get_running_loop()
        stream.sent = time.perf_counter()
        try:
            transport, answer = await loop.create_connection(
                lambda: _Answer(request, stream), host, port, ssl=secure
            )
        except OSError as error:
            stream.error, stream.ended = f"{error}", time.perf_counter()
            return
        try:
            await answer.over
        finally:
            transport.abort()

    return ask


class _Answer(asyncio.Protocol):
    def __init__(self, request: bytes, stream: Stream) -> None:
        self.over: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._request = request
        self._response = Response(stream)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        cast(asyncio.WriteTransport, transport).write(self._request)

    def data_received(self, data: bytes) -> None:
        now = time.perf_counter()
        self._response.feed(data, now)
        if self._response.complete:
            self._finish(now)

    def connection_lost(self, error: Exception | None) -> None:
        self._finish(time.perf_counter())

    def _finish(self, now: float) -> None:
        if not self.over.done():
            self._response.finish(now)
            self.over.set_result(None)
