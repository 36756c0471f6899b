"""An HTTP answer made of server-sent events, read as it comes: when text came, and its usage.

It does as little for each token as it can, since clients share the machine with the server.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import Any

TEXT = re.compile(rb'"(?:text|content|reasoning_content|reasoning)": ?"(?!")')
USAGE = re.compile(rb'"usage": ?\{')
ERROR = re.compile(rb'^(?:event: ?error\n)?data: ?\{"error"')
DONE = b"data: [DONE]"


@dataclass
class Stream:
    """One request's course; times are seconds of one clock.

    ``arrivals`` has a time for each event with text. ``tokens``, ``prompt_tokens`` and
    ``cached_tokens`` of the latter are the server's own usage, or None where it tells none.
    """

    sent: float = 0.0
    arrivals: list[float] = field(default_factory=list)
    ended: float = 0.0
    tokens: int | None = None
    prompt_tokens: int | None = None
    error: str = ""
    cached_tokens: int | None = None

    @property
    def over(self) -> bool:
        return self.ended > 0


class Response:
    """Takes the bytes of one HTTP/1.1 response into a ``Stream``."""

    def __init__(self, stream: Stream) -> None:
        self.complete = False
        self._stream = stream
        self._head: bytes | None = b""
        self._chunked = False
        self._status = 0
        self._wire = b""  # what is not yet decoded of a chunked body
        self._rest = b""  # what is not yet a whole event
        self._usage = b""

    def feed(self, data: bytes, now: float) -> None:
        """``data`` came at ``now``."""
        if self._head is not None:
            self._head += data
            head, end, data = self._head.partition(b"\r\n\r\n")
            if not end:
                return
            self._begin(head)
        self._body(self._dechunk(data) if self._chunked else data, now)

    def finish(self, now: float) -> None:
        """The connection has ended at ``now``."""
        self._stream.ended = now
        if self._status != 200:
            self._stream.error = f"{self._status or 'no answer'}: {self._rest.decode()[:500]}"
        elif not self.complete and not self._stream.error:
            self._stream.error = "the stream broke off"
        if self._usage:
            usage = _usage_of(self._usage)
            self._stream.tokens = usage.get("completion_tokens")
            self._stream.prompt_tokens = usage.get("prompt_tokens")
            details = usage.get("prompt_tokens_details") or {}
            self._stream.cached_tokens = details.get("cached_tokens")

    def _begin(self, head: bytes) -> None:
        self._head = None
        self._status = int(head.split(None, 2)[1])
        self._chunked = b"transfer-encoding: chunked" in head.lower()

    def _dechunk(self, data: bytes) -> bytes:
        wire = self._wire + data
        parts: list[bytes] = []
        at = 0
        while not self.complete and (line := wire.find(b"\r\n", at)) >= 0:
            size = int(wire[at:line].partition(b";")[0], 16)
            if size == 0:
                self.complete = True
                break
            if len(wire) < line + 4 + size:
                break
            parts.append(wire[line + 2 : line + 2 + size])
            at = line + 4 + size
        self._wire = wire[at:]
        return b"".join(parts)

    def _body(self, data: bytes, now: float) -> None:
        rest = self._rest + data
        if self._status != 200:
            self._rest = rest
            return
        if b"\r" in rest:
            rest = rest.replace(b"\r\n", b"\n")
        *events, self._rest = rest.split(b"\n\n")
        for event in events:
            self._event(event, now)

    def _event(self, event: bytes, now: float) -> None:
        if TEXT.search(event):
            self._stream.arrivals.append(now)
        if USAGE.search(event):
            self._usage = event
        elif event.startswith(DONE):
            self.complete = True
        elif ERROR.search(event):
            self._stream.error = event.decode()[:500]


def _usage_of(event: bytes) -> dict[str, Any]:
    data = event[event.index(b"{") :]
    usage: dict[str, Any] = json.loads(data)["usage"]
    return usage
