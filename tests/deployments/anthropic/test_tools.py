"""Thinking, tools and formats in Anthropic's words: what is asked, and what is answered."""

from __future__ import annotations

from typing import Any

import anthropic
import httpx2
import pytest

from deployments.anthropic.request import parse_messages
from deployments.anthropic.tools import parse_grammar, parse_tools, template_kwargs
from deployments.openai.errors import ApiError
from models.events import Finished, FinishReason, Started, Text, ToolCall, Usage
from models.request import ChatPrompt, Grammar, ToolChoice
from tests.deployments.anthropic.asking import ask, told
from tests.deployments.calling import calling
from tests.deployments.serving import Reciting, make_app

ADD: dict[str, Any] = {
    "name": "add",
    "description": "Adds.",
    "input_schema": {"type": "object", "properties": {"a": {"type": "integer"}}},
}
USAGE = Usage(3, 9, 0, 2)
CALLING = calling("")
END = Finished(FinishReason.TOOL_CALLS, USAGE)


async def test_blocks_of_every_kind() -> None:
    message = (await ask(make_app(Reciting("mock", *CALLING, END)), tools=[ADD])).json()
    assert message["content"] == [
        {"type": "thinking", "thinking": "Let me.", "signature": ""},
        {"type": "text", "text": "So"},
        {"type": "tool_use", "id": "call_1", "name": "add", "input": {"a": 1}},
        {"type": "tool_use", "id": "call_2", "name": "now", "input": {}},
    ]
    assert message["stop_reason"] == "tool_use"
    assert message["usage"]["output_tokens_details"] == {"thinking_tokens": 2}


async def test_thoughts_may_be_left_out() -> None:
    thinking = {"type": "adaptive", "display": "omitted"}
    app = make_app(Reciting("mock", *CALLING, END))
    message = (await ask(app, thinking=thinking)).json()
    assert message["content"][0] == {"type": "thinking", "thinking": "", "signature": ""}
    assert message["content"][1] == {"type": "text", "text": "So"}
    assert message["usage"]["output_tokens_details"] == {"thinking_tokens": 2}
    events = [event for _, event in told((await ask(app, thinking=thinking, stream=True)).text)]
    kinds = [event["type"].removeprefix("content_block_") for event in events[2:6]]
    assert kinds == ["start", "stop", "start", "delta"]


async def test_their_events() -> None:
    answer = await ask(make_app(Reciting("mock", *CALLING, END)), stream=True)
    events = [event for _, event in told(answer.text)][2:-2]
    seen = [(event["type"].removeprefix("content_block_"), event["index"]) for event in events]
    assert seen == [
        ("start", 0), ("delta", 0), ("delta", 0), ("stop", 0),
        ("start", 1), ("delta", 1), ("stop", 1),
        ("start", 2), ("delta", 2), ("delta", 2), ("stop", 2),
        ("start", 3), ("stop", 3),
    ]  # fmt: skip
    start = events[7]["content_block"]
    assert start == {"type": "tool_use", "id": "call_1", "name": "add", "input": {}}
    pieces = [event["delta"] for event in events if event["type"].endswith("delta")][3:]
    assert pieces[0] == {"type": "input_json_delta", "partial_json": '{"a": '}


@pytest.mark.parametrize(
    ("reason", "stop"),
    [(FinishReason.STOP, "tool_use"), (FinishReason.LENGTH, "model_context_window_exceeded")],
)
async def test_a_use_is_why_it_stopped_unless_it_was_cut(reason: FinishReason, stop: str) -> None:
    app = make_app(Reciting("mock", *CALLING, Finished(reason, USAGE)))
    assert (await ask(app)).json()["stop_reason"] == stop


async def test_arguments_that_were_cut_are_none() -> None:
    call = ToolCall(0, "call_1", "add", '{"a": ')
    app = make_app(Reciting("mock", Started(1, 0), call, Finished(FinishReason.LENGTH, USAGE)))
    [block] = (await ask(app, max_tokens=9)).json()["content"]
    assert block["input"] == {}


async def test_the_clients_helper_puts_them_together() -> None:
    app = make_app(Reciting("mock", *CALLING, END))
    http = httpx2.AsyncClient(transport=httpx2.ASGITransport(app))
    client = anthropic.AsyncAnthropic(base_url="http://test", api_key="x", http_client=http)
    tools: Any = [ADD]
    async with client.messages.stream(
        model="mock", max_tokens=50, messages=[{"role": "user", "content": "x"}], tools=tools
    ) as stream:
        message = await stream.get_final_message()
    kinds = [block.type for block in message.content]
    assert kinds == ["thinking", "text", "tool_use", "tool_use"]
    assert [block.input for block in message.content if block.type == "tool_use"] == [{"a": 1}, {}]


async def test_what_reaches_the_engine() -> None:
    engine = Reciting("mock", *CALLING, END)
    await ask(
        make_app(engine),
        tools=[ADD],
        tool_choice={"type": "tool", "name": "add", "disable_parallel_tool_use": True},
        thinking={"type": "enabled", "budget_tokens": 2000},
        output_config={"effort": "high", "format": {"type": "json_schema", "schema": {}}},
    )
    [request] = engine.requests
    prompt = request.prompt
    assert isinstance(prompt, ChatPrompt)
    function = {"name": "add", "description": "Adds.", "parameters": ADD["input_schema"]}
    assert prompt.tools == ({"type": "function", "function": function},)
    assert prompt.template_kwargs == {"enable_thinking": True, "reasoning_effort": "high"}
    assert request.tool_choice == ToolChoice("required", "add", parallel=False)
    assert request.thinking_budget == 2000
    assert request.grammar == Grammar("json_schema", "{}", "output_config.format")


async def test_the_assistants_last_words_are_gone_on_with() -> None:
    engine = Reciting("mock", Started(1, 0), Text("B)"), Finished(FinishReason.STOP, USAGE))
    messages = [{"role": "user", "content": "x"}, {"role": "assistant", "content": "It is ("}]
    await ask(make_app(engine), messages=messages)
    prompt = engine.requests[0].prompt
    assert isinstance(prompt, ChatPrompt)
    assert prompt.continue_final_message
    assert not prompt.add_generation_prompt


@pytest.mark.parametrize(
    ("choice", "expected"),
    [
        (None, ToolChoice()),
        ({"type": "auto"}, ToolChoice()),
        ({"type": "auto", "disable_parallel_tool_use": True}, ToolChoice(parallel=False)),
        ({"type": "any"}, ToolChoice("required")),
        ({"type": "tool", "name": "add"}, ToolChoice("required", "add")),
    ],
)
def test_choices(choice: Any, expected: ToolChoice) -> None:
    offer = parse_tools([ADD], choice)
    assert offer.choice == expected
    assert len(offer.tools) == 1


def test_no_tools_at_all() -> None:
    assert parse_tools([ADD], {"type": "none"}).tools == ()
    assert parse_tools(None, None).tools == ()
    assert parse_tools([], None).tools == ()


@pytest.mark.parametrize(
    ("thinking", "config", "expected"),
    [
        (None, None, {}),
        ({"type": "disabled"}, {}, {"enable_thinking": False}),
        ({"type": "adaptive", "display": "summarized"}, None, {"enable_thinking": True}),
        (None, {"effort": "low"}, {"reasoning_effort": "low"}),
    ],
)
def test_what_templates_are_told(thinking: Any, config: Any, expected: dict[str, Any]) -> None:
    assert template_kwargs(thinking, config) == expected


def test_no_format() -> None:
    assert parse_grammar(None) is None
    assert parse_grammar({"effort": "low"}) is None


def tool(**changes: Any) -> list[dict[str, Any]]:
    return [{**ADD, **changes}]


@pytest.mark.parametrize(
    ("tools", "choice", "param"),
    [
        ("x", None, "tools"),
        (["x"], None, "tools[0]"),
        (tool(type="web_search_20260101"), None, "tools[0].type"),
        (tool(name="a b"), None, "tools[0].name"),
        (tool(name=None), None, "tools[0].name"),
        ([*tool(), *tool()], None, "tools[1].name"),
        (tool(input_schema=None), None, "tools[0].input_schema"),
        (tool(input_schema={"type": "array"}), None, "tools[0].input_schema"),
        (tool(description=1), None, "tools[0].description"),
        (tool(defer_loading=True), None, "tools[0].defer_loading"),
        (tool(), "auto", "tool_choice"),
        (tool(), {"type": "other"}, "tool_choice.type"),
        (tool(), {"type": ["any"]}, "tool_choice.type"),
        (tool(), {"type": "tool"}, "tool_choice.name"),
        (tool(), {"type": "tool", "name": "sub"}, "tool_choice.name"),
        (tool(), {"type": "auto", "disable_parallel_tool_use": 1}, None),
        (None, {"type": "any"}, "tool_choice"),
    ],
)
def test_mistakes_name_the_field(tools: Any, choice: Any, param: str | None) -> None:
    with pytest.raises(ApiError) as caught:
        parse_tools(tools, choice)
    assert caught.value.param == (param or "tool_choice.disable_parallel_tool_use")
    assert ".function" not in caught.value.message


@pytest.mark.parametrize(
    ("thinking", "config", "param"),
    [
        ("x", None, "thinking"),
        ({"type": "between_tools"}, None, "thinking.type"),
        ({"type": "enabled"}, None, "thinking.budget_tokens"),
        ({"type": "enabled", "budget_tokens": "x"}, None, "thinking.budget_tokens"),
        ({"type": "enabled", "budget_tokens": -1}, None, "thinking.budget_tokens"),
        ({"type": "adaptive", "budget_tokens": "x"}, None, "thinking.budget_tokens"),
        ({"type": "adaptive", "display": "hidden"}, None, "thinking.display"),
        ({"type": "adaptive", "block_binding": {}}, None, "thinking.block_binding"),
        (None, "x", "output_config"),
        (None, {"other": 1}, "output_config.other"),
        (None, {"effort": []}, "output_config.effort"),
        (None, {"format": "x"}, "output_config.format"),
        (None, {"format": {"type": "regex"}}, "output_config.format.type"),
        (None, {"format": {"type": "json_schema"}}, "output_config.format.schema"),
    ],
)
def test_mistakes_of_options_too(thinking: Any, config: Any, param: str) -> None:
    body = {"model": "mock", "messages": [{"role": "user", "content": "x"}], "max_tokens": 9}
    with pytest.raises(ApiError) as caught:
        parse_messages({**body, "thinking": thinking, "output_config": config}, "r")
    assert caught.value.param == param
