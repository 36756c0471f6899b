"""Calls and reasoning as clients see them, of engines that really decode."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx2
import jsonschema
import openai
import pytest
from starlette.applications import Starlette

from configs.settings import EngineSettings, ModelSettings
from models.build import build_scheduled
from models.scheduled import Scheduled
from tests.deployments.schemas import check
from tests.deployments.serving import chat, events, make_app

WEATHER = {
    "type": "object",
    "properties": {"city": {"enum": ["Paris", "Rome"]}, "days": {"enum": [1, 3]}},
    "required": ["city", "days"],
    "additionalProperties": False,
}
TOOLS: list[Any] = [
    {"type": "function", "function": {"name": "get_weather", "parameters": WEATHER}},
    {"type": "function", "function": {"name": "now"}},
]
HELLO: Any = [{"role": "user", "content": "Hello there"}]
NAMED = {"type": "function", "function": {"name": "get_weather"}}
ARGUMENTS = '{"city": "Paris", "days": 3}'
SAID = (
    "<think>\nHm.\n</think>\n\nLet me see.\n"
    f'<tool_call>\n{{"name": "get_weather", "arguments": {ARGUMENTS}}}\n</tool_call>\n'
    '<tool_call>\n{"name": "now", "arguments": {}}\n</tool_call>'
)


@contextmanager
def saying(text: str, **settings: Any) -> Iterator[Starlette]:
    """The application over a model that says this text."""
    given = {"reasoning": "think", "tool_format": "hermes", **settings}
    model = ModelSettings(
        name="mock",
        factory="tests.models.scripted:Scripted",
        factory_args={"text": text},
        **given,
    )
    with build_scheduled(model) as engine:
        yield make_app(engine)


async def streamed(app: Starlette, **body: Any) -> list[dict[str, Any]]:
    answer = await chat(app, stream=True, temperature=0, **body)
    *chunks, done = events(answer.text)
    assert done == "[DONE]"
    for chunk in chunks:
        check("CreateChatCompletionStreamResponse", chunk)
    return [chunk["choices"][0] for chunk in chunks if chunk["choices"]]


async def test_an_answer_with_calls_is_whole() -> None:
    with saying(SAID) as app:
        body = (await chat(app, tools=TOOLS)).json()
    check("CreateChatCompletionResponse", body)
    (choice,) = body["choices"]
    message = choice["message"]
    assert message["content"] == "Let me see.\n"
    assert message["reasoning_content"] == message["reasoning"] == "Hm."
    assert [call["function"] for call in message["tool_calls"]] == [
        {"name": "get_weather", "arguments": ARGUMENTS},
        {"name": "now", "arguments": "{}"},
    ]
    assert all(call["type"] == "function" for call in message["tool_calls"])
    assert len({call["id"] for call in message["tool_calls"]}) == 2
    assert choice["finish_reason"] == "tool_calls"
    assert body["usage"]["completion_tokens_details"]["reasoning_tokens"] > 0


async def test_a_stream_of_calls_is_openais() -> None:
    with saying(SAID) as app:
        choices = await streamed(app, tools=TOOLS)
    deltas = [choice["delta"] for choice in choices]
    for name in ("reasoning_content", "reasoning"):
        assert "".join(delta.get(name, "") for delta in deltas) == "Hm."
    assert "".join(delta.get("content") or "" for delta in deltas) == "Let me see.\n"
    calls = [call for delta in deltas for call in delta.get("tool_calls", ())]
    assert [call["index"] for call in calls] == sorted(call["index"] for call in calls)
    for index, name, arguments in ((0, "get_weather", ARGUMENTS), (1, "now", "{}")):
        first, *more = [call for call in calls if call["index"] == index]
        assert first["id"]
        assert first["type"] == "function"
        assert first["function"]["name"] == name
        assert all(set(call) == {"index", "function"} for call in more)
        assert all(set(call["function"]) == {"arguments"} for call in more)
        assert "".join(call["function"]["arguments"] for call in [first, *more]) == arguments
    assert [choice["finish_reason"] for choice in choices[:-1]] == [None] * (len(choices) - 1)
    assert choices[-1]["finish_reason"] == "tool_calls"


async def test_long_arguments_come_in_pieces() -> None:
    arguments = json.dumps({"text": "word " * 100})
    with saying(f'<tool_call>{{"name": "now", "arguments": {arguments}}}</tool_call>') as app:
        choices = await streamed(app, tools=TOOLS)
    calls = [call for one in choices for call in one["delta"].get("tool_calls", ())]
    assert len(calls) > 2
    assert "".join(call["function"]["arguments"] for call in calls) == arguments


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ({"tools": TOOLS}, "tool_calls"),
        ({"tools": TOOLS, "max_tokens": 120}, "length"),
        ({"tools": TOOLS, "tool_choice": "none"}, "stop"),
        ({}, "stop"),
    ],
)
async def test_both_modes_end_and_say_the_same(body: dict[str, Any], reason: str) -> None:
    with saying(SAID) as app:
        whole = (await chat(app, temperature=0, **body)).json()["choices"][0]
        choices = await streamed(app, **body)
    assert whole["finish_reason"] == choices[-1]["finish_reason"] == reason
    content = "".join(choice["delta"].get("content") or "" for choice in choices)
    assert content == (whole["message"]["content"] or "")
    if reason == "stop":
        assert "tool_calls" not in whole["message"]
        assert content.startswith("Let me see.\n<tool_call>")


async def test_a_malformed_call_is_content() -> None:
    text = '<tool_call>{"name": "now", "arguments": {oops}}</tool_call>'
    with saying(text) as app:
        whole = (await chat(app, tools=TOOLS)).json()["choices"][0]
        choices = await streamed(app, tools=TOOLS)
    assert whole["message"]["content"] == text
    assert "".join(choice["delta"].get("content") or "" for choice in choices) == text
    assert whole["finish_reason"] == choices[-1]["finish_reason"] == "stop"


async def test_one_call_at_most_without_parallel_calls() -> None:
    with saying(SAID) as app:
        whole = (await chat(app, tools=TOOLS, parallel_tool_calls=False)).json()["choices"][0]
    assert [call["function"]["name"] for call in whole["message"]["tool_calls"]] == ["get_weather"]
    assert whole["finish_reason"] == "tool_calls"


async def test_content_is_null_beside_calls_alone() -> None:
    with saying('<tool_call>{"name": "now"}</tool_call>') as app:
        message = (await chat(app, tools=TOOLS)).json()["choices"][0]["message"]
    assert message["content"] is None
    with saying("<think>Hm.") as app:
        body = (await chat(app)).json()
    message = body["choices"][0]["message"]
    assert (message["content"], message["reasoning"]) == (None, "Hm.")
    assert body["usage"]["completion_tokens_details"]["reasoning_tokens"] > 0


def client(app: Starlette) -> openai.AsyncOpenAI:
    http = httpx2.AsyncClient(transport=httpx2.ASGITransport(app))
    return openai.AsyncOpenAI(base_url="http://test/v1", api_key="x", http_client=http)


async def test_the_official_client_gathers_the_stream() -> None:
    with saying(SAID) as app:
        seen = []
        async with client(app).chat.completions.stream(
            model="mock", messages=HELLO, tools=TOOLS, stream_options={"include_usage": True}
        ) as stream:
            async for event in stream:
                if event.type == "tool_calls.function.arguments.done":
                    seen.append((event.index, event.name, event.arguments))
            final = await stream.get_final_completion()
    assert seen == [(0, "get_weather", ARGUMENTS), (1, "now", "{}")]
    (choice,) = final.choices
    assert choice.finish_reason == "tool_calls"
    assert choice.message.content == "Let me see.\n"
    assert choice.message.model_extra is not None
    assert choice.message.model_extra["reasoning_content"] == "Hm."
    calls = choice.message.tool_calls or []
    assert [call.function.arguments for call in calls] == [ARGUMENTS, "{}"]
    assert final.usage is not None
    assert final.usage.completion_tokens_details is not None
    assert final.usage.completion_tokens_details.reasoning_tokens


async def test_calls_and_results_go_back_as_the_client_has_them() -> None:
    with saying(SAID) as app:
        one = client(app)
        first = await one.chat.completions.create(model="mock", messages=HELLO, tools=TOOLS)
        message = first.choices[0].message
        results = [
            {"role": "tool", "tool_call_id": call.id, "content": "21"}
            for call in message.tool_calls or ()
        ]
        again: Any = [*HELLO, message.model_dump(), *results]
        second = await one.chat.completions.create(model="mock", messages=again, tools=TOOLS)
    assert second.choices[0].finish_reason == "tool_calls"
    assert first.usage is not None
    assert second.usage is not None
    assert second.usage.prompt_tokens > first.usage.prompt_tokens


@pytest.fixture(scope="module")
def babbling() -> Iterator[Scheduled]:
    """A random model: nothing of what it says is of its own making."""
    model = ModelSettings(
        name="mock",
        factory="tests.models.babbling:babbling",
        factory_args={"context": 1024},
        engine=EngineSettings(max_running=4, step_tokens=32),
    )
    with build_scheduled(model) as engine:
        yield engine


@pytest.mark.parametrize(("choice", "reason"), [("required", "tool_calls"), (NAMED, "stop")])
@pytest.mark.parametrize("seed", range(4))
async def test_a_required_call_is_always_made(
    babbling: Scheduled, choice: Any, reason: str, seed: int
) -> None:
    app, body = make_app(babbling), {"tools": TOOLS[:1], "tool_choice": choice, "seed": seed}
    body |= {"parallel_tool_calls": False}
    (whole,) = (await chat(app, **body)).json()["choices"]
    (call,) = whole["message"]["tool_calls"]
    assert (whole["message"]["content"], whole["finish_reason"]) == (None, reason)
    assert call["function"]["name"] == "get_weather"
    jsonschema.validate(json.loads(call["function"]["arguments"]), WEATHER)

    *said, end = (one for one in events((await chat(app, stream=True, **body)).text)[:-1])
    deltas = [chunk["choices"][0]["delta"] for chunk in said]
    assert not any(delta.get("content") for delta in deltas)
    calls = [one["function"] for delta in deltas for one in delta.get("tool_calls", ())]
    assert calls[0]["name"] == "get_weather"
    jsonschema.validate(json.loads("".join(one["arguments"] for one in calls)), WEATHER)
    assert end["choices"][0]["finish_reason"] == reason


async def test_several_calls_may_be_made_where_one_is_required(babbling: Scheduled) -> None:
    for seed in range(6):
        answer = await chat(make_app(babbling), tools=TOOLS, tool_choice="required", seed=seed)
        (whole,) = answer.json()["choices"]
        if whole["finish_reason"] == "tool_calls":
            assert whole["message"]["content"] is None
            names = {call["function"]["name"] for call in whole["message"]["tool_calls"]}
            assert names <= {"get_weather", "now"}
            return
    raise AssertionError("no answer ended before the end of the context")


async def test_a_schema_that_cannot_be_enforced_is_refused(babbling: Scheduled) -> None:
    parameters = {"type": "object", "properties": {"a": {"type": "nonsense"}}}
    tools = [{"type": "function", "function": {"name": "f", "parameters": parameters}}]
    answer = await chat(make_app(babbling), tools=tools, tool_choice="required")
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, "tools")
