"""Responses asked of an app, and the events that tell of them."""

from __future__ import annotations

import json
from typing import Any

import httpx
from starlette.applications import Starlette

from tests.deployments.schemas import check
from tests.deployments.serving import post

RESPONSES = "/v1/responses"


async def ask(app: Starlette, **changes: Any) -> httpx.Response:
    return await post(app, RESPONSES, {"model": "mock", "input": "Hello there", **changes})


async def answer(app: Starlette, **changes: Any) -> dict[str, Any]:
    got = await ask(app, **changes)
    assert got.status_code == 200, got.text
    response: dict[str, Any] = got.json()
    check("Response", response)
    return response


def told(text: str) -> list[dict[str, Any]]:
    """The events of a stream; names and numbers must be right."""
    events = []
    for i, event in enumerate(text.removesuffix("\n\n").split("\n\n")):
        name, data = event.split("\n")
        events.append(json.loads(data.removeprefix("data: ")))
        assert name == f"event: {events[-1]['type']}"
        assert events[-1]["sequence_number"] == i
    return events
