from __future__ import annotations

import json
from typing import Any

import pytest

from tests.bench.sse import Response, Stream

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"


def event(text: str, usage: dict[str, Any] | None = None) -> bytes:
    data = {"choices": [{"index": 0, "text": text}], "usage": usage}
    return f"data: {json.dumps(data)}\n\n".encode()


def chunked(*parts: bytes) -> bytes:
    return b"".join(b"%x\r\n%s\r\n" % (len(part), part) for part in [*parts, b""])


ANSWER = [
    event(""),
    event("one"),
    event(' "two'),
    event(
        "",
        {
            "prompt_tokens": 7,
            "completion_tokens": 3,
            "prompt_tokens_details": {"cached_tokens": 4},
        },
    ),
    b"data: [DONE]\n\n",
]


def read(data: bytes, at_once: int) -> Stream:
    """The stream that comes of data in pieces of so many bytes; its clock counts the bytes."""
    stream = Stream()
    response = Response(stream)
    for at in range(0, len(data), at_once):
        response.feed(data[at : at + at_once], at + at_once)
    response.finish(len(data))
    return stream


@pytest.mark.parametrize("at_once", [1, 2, 7, 10_000])
@pytest.mark.parametrize("line_end", [b"\n", b"\r\n"])
def test_events_are_counted_however_they_arrive(at_once: int, line_end: bytes) -> None:
    parts = [part.replace(b"\n", line_end) for part in ANSWER]
    stream = read(HEAD + chunked(*parts), at_once)
    assert len(stream.arrivals) == 2
    assert stream.arrivals == sorted(stream.arrivals)
    assert (stream.tokens, stream.prompt_tokens, stream.cached_tokens) == (3, 7, 4)
    assert stream.error == ""
    assert stream.over


def test_an_event_may_span_chunks_and_a_chunk_may_hold_several() -> None:
    whole = b"".join(ANSWER)
    for parts in ([whole], [whole[:30], whole[30:]]):
        assert read(HEAD + chunked(*parts), 10_000).tokens == 3


def test_a_body_without_chunks_ends_with_done() -> None:
    stream = read(b"HTTP/1.1 200 OK\r\n\r\n" + b"".join(ANSWER), 5)
    assert (stream.tokens, stream.error) == (3, "")


def test_what_was_refused_is_told() -> None:
    stream = read(b'HTTP/1.1 503 No\r\nContent-Length: 14\r\n\r\n{"error":"no"}', 3)
    assert stream.error == '503: {"error":"no"}'
    assert stream.arrivals == []


def test_a_stream_that_breaks_off_is_an_error() -> None:
    assert read(HEAD + chunked(event("one"))[:-5], 10_000).error == "the stream broke off"
    assert read(b"", 1).error.startswith("no answer")
    failed = read(HEAD + chunked(b'data: {"error": {"message": "lost"}}\n\n'), 10_000)
    assert "lost" in failed.error
