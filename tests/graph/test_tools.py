"""Required calls through the whole graph: grammar in the Model, reading in the ingress."""

from __future__ import annotations

import json
from typing import Any

import httpx
import jsonschema
import pytest

from tests.graph.conftest import RunningGraph

pytestmark = [pytest.mark.slow, pytest.mark.asyncio(loop_scope="session")]

SCHEMA = {
    "type": "object",
    "properties": {"n": {"enum": [1, 2]}},
    "required": ["n"],
    "additionalProperties": False,
}
BODY: dict[str, Any] = {
    "model": "babbling",
    "messages": [{"role": "user", "content": "hi"}],
    "tools": [{"type": "function", "function": {"name": "f", "parameters": SCHEMA}}],
    "tool_choice": "required",
    "parallel_tool_calls": False,
}


async def post(graph: RunningGraph, **body: Any) -> httpx.Response:
    async with httpx.AsyncClient(timeout=60) as client:
        url = f"http://127.0.0.1:{graph.port}/v1/chat/completions"
        return await client.post(url, json=BODY | body)


async def test_a_whole_answer(graph: RunningGraph) -> None:
    answer = await post(graph, n=2)
    assert answer.status_code == 200, answer.text
    for choice in answer.json()["choices"]:
        assert choice["finish_reason"] == "tool_calls"
        (call,) = choice["message"]["tool_calls"]
        jsonschema.validate(json.loads(call["function"]["arguments"]), SCHEMA)


async def test_a_streamed_answer(graph: RunningGraph) -> None:
    answer = await post(graph, stream=True, tool_choice=BODY["tools"][0])
    chunks = [json.loads(line[6:]) for line in answer.text.split("\n\n") if "{" in line]
    deltas = [chunk["choices"][0]["delta"] for chunk in chunks]
    calls = [call["function"] for delta in deltas for call in delta.get("tool_calls", ())]
    jsonschema.validate(json.loads("".join(call["arguments"] for call in calls)), SCHEMA)
    assert chunks[-1]["choices"][0]["finish_reason"] == "stop"


async def test_a_bad_schema_is_the_callers_mistake(graph: RunningGraph) -> None:
    schema = {"type": "object", "properties": {"n": {"type": "nonsense"}}}
    tools = [{"type": "function", "function": {"name": "f", "parameters": schema}}]
    answer = await post(graph, tools=tools)
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, "tools")


async def test_an_engine_of_text_cannot_be_made_to_call(graph: RunningGraph) -> None:
    answer = await post(graph, model="crash")
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, "tool_choice")
