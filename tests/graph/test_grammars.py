"""Grammars through the whole graph: over HTTP, streamed or not, and refused before any 200."""

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
    "properties": {"n": {"type": "integer", "minimum": 0, "maximum": 99}, "b": {"type": "boolean"}},
    "required": ["n", "b"],
    "additionalProperties": False,
}
FORMAT = {"type": "json_schema", "json_schema": {"name": "s", "strict": True, "schema": SCHEMA}}
BODY: dict[str, Any] = {
    "max_tokens": 200,
    "messages": [{"role": "user", "content": "hi"}],
    "model": "babbling",
}


async def post(graph: RunningGraph, path: str = "chat/completions", **body: Any) -> httpx.Response:
    async with httpx.AsyncClient(timeout=60) as client:
        url = f"http://127.0.0.1:{graph.port}/v1/{path}"
        return await client.post(url, json=body)


async def test_a_whole_answer(graph: RunningGraph) -> None:
    answer = await post(graph, **BODY, response_format=FORMAT, n=3)
    assert answer.status_code == 200, answer.text
    for choice in answer.json()["choices"]:
        assert choice["finish_reason"] == "stop"
        jsonschema.validate(json.loads(choice["message"]["content"]), SCHEMA)


async def test_a_streamed_answer(graph: RunningGraph) -> None:
    answer = await post(graph, **BODY, structured_outputs={"json": SCHEMA}, stream=True)
    chunks = [json.loads(line[6:]) for line in answer.text.split("\n\n") if "{" in line]
    deltas = [chunk["choices"][0]["delta"].get("content") or "" for chunk in chunks]
    jsonschema.validate(json.loads("".join(deltas)), SCHEMA)
    assert chunks[-1]["choices"][0]["finish_reason"] == "stop"


async def test_completions(graph: RunningGraph) -> None:
    body: dict[str, Any] = {"model": "babbling", "prompt": ["a", "b"], "max_tokens": 20}
    answer = await post(graph, "completions", **body, guided_choice=["yes", "no"])
    assert {choice["text"] for choice in answer.json()["choices"]} <= {"yes", "no"}


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("param", "value"),
    [
        ("response_format", {"type": "json_schema", "json_schema": {"schema": {"type": "x"}}}),
        ("guided_regex", "a("),
        ("guided_grammar", "root ::= missing"),
        ("regex", "(" * 5000),
    ],
)
async def test_a_bad_grammar_is_the_callers_mistake(
    graph: RunningGraph, param: str, value: Any, stream: bool
) -> None:
    answer = await post(graph, **BODY, stream=stream, **{param: value})
    assert answer.status_code == 400, answer.text
    error = answer.json()["error"]
    assert (error["type"], error["param"]) == ("invalid_request_error", param)
    assert param in error["message"]


async def test_an_engine_of_its_own_that_follows_none_refuses(graph: RunningGraph) -> None:
    answer = await post(graph, **{**BODY, "model": "crash"}, response_format=FORMAT)
    assert answer.status_code == 400
    assert answer.json()["error"]["param"] == "response_format"
