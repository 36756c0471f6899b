"""Messages asked of an app, and the events that answer them."""

from __future__ import annotations

import json
from typing import Any

import httpx
from starlette.applications import Starlette

from tests.deployments.serving import post

MESSAGES = "/v1/messages"
HELLO = [{"role": "user", "content": "Hello there"}]


def body(**changes: Any) -> dict[str, Any]:
    return {"model": "mock", "max_tokens": 100, "messages": HELLO, **changes}


async def ask(app: Starlette, path: str = MESSAGES, **changes: Any) -> httpx.Response:
    return await post(app, path, body(**changes))


def told(text: str) -> list[tuple[str, dict[str, Any]]]:
    """The events of a stream: name and data, which must agree."""
    events = []
    assert text.endswith("\n\n")
    for event in text[:-2].split("\n\n"):
        name, data = event.split("\n")
        assert name.startswith("event: ")
        assert data.startswith("data: ")
        events.append((name.removeprefix("event: "), json.loads(data.removeprefix("data: "))))
    assert all(name == data["type"] for name, data in events)
    return events
