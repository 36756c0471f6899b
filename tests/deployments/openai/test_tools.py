from __future__ import annotations

from typing import Any

import pytest

from deployments.openai.errors import ApiError
from deployments.openai.tools import names_of, parse_offer
from models.mock import MockEngine
from models.request import ChatPrompt, ToolChoice
from tests.deployments.serving import chat, make_app


def tool(**function: Any) -> dict[str, Any]:
    return {"type": "function", "function": {"name": "f", **function}}


G = tool(name="g")


def named(name: str) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name}}


def allowed(mode: Any, *names: str) -> dict[str, Any]:
    tools = [named(name) for name in names]
    return {"type": "allowed_tools", "allowed_tools": {"mode": mode, "tools": tools}}


@pytest.mark.parametrize(
    ("tools", "param"),
    [
        ({}, "tools"),
        ([tool()] * 1025, "tools"),
        (["f"], "tools[0]"),
        ([None], "tools[0]"),
        ([{"function": {"name": "f"}}], "tools[0].type"),
        ([{"type": "custom", "custom": {"name": "f"}}], "tools[0].type"),
        ([{"type": 5}], "tools[0].type"),
        ([{"type": "function"}], "tools[0].function"),
        ([{"type": "function", "function": "f"}], "tools[0].function"),
        ([{"type": "function", "function": {}}], "tools[0].function.name"),
        ([tool(name=5)], "tools[0].function.name"),
        ([tool(name="")], "tools[0].function.name"),
        ([tool(name="a b")], "tools[0].function.name"),
        ([tool(name="a" * 65)], "tools[0].function.name"),
        ([tool(name="é")], "tools[0].function.name"),
        ([tool(), tool()], "tools[1].function.name"),
        ([G, tool(description=5)], "tools[1].function.description"),
        ([tool(strict="yes")], "tools[0].function.strict"),
        ([tool(parameters=[])], "tools[0].function.parameters"),
        ([tool(parameters="{}")], "tools[0].function.parameters"),
        ([tool(parameters={"type": "array"})], "tools[0].function.parameters"),
        ([tool(parameters={"properties": []})], "tools[0].function.parameters.properties"),
        ([tool(parameters={"properties": {"a": 5}})], "tools[0].function.parameters.properties.a"),
        ([tool(parameters={"required": "a"})], "tools[0].function.parameters.required"),
        ([tool(parameters={"required": [5]})], "tools[0].function.parameters.required[0]"),
    ],
)
async def test_a_wrong_tool_is_named(tools: Any, param: str) -> None:
    with pytest.raises(ApiError) as caught:
        parse_offer(tools, None, None)
    assert caught.value.param == param
    answer = await chat(make_app(), tools=tools)
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, param)


@pytest.mark.parametrize(
    ("choice", "param"),
    [
        ("any", "tool_choice"),
        (5, "tool_choice"),
        ([], "tool_choice"),
        ({}, "tool_choice.type"),
        ({"type": "custom"}, "tool_choice.type"),
        ({"type": "function"}, "tool_choice.function"),
        ({"type": "function", "function": {}}, "tool_choice.function.name"),
        (named("h"), "tool_choice.function.name"),
        ({"type": "allowed_tools"}, "tool_choice.allowed_tools"),
        (allowed(None, "f"), "tool_choice.allowed_tools.mode"),
        (allowed("none", "f"), "tool_choice.allowed_tools.mode"),
        (allowed("auto"), "tool_choice.allowed_tools.tools"),
        (allowed("auto", "f", "h"), "tool_choice.allowed_tools.tools[1].function.name"),
    ],
)
def test_a_wrong_choice_is_named(choice: Any, param: str) -> None:
    with pytest.raises(ApiError) as caught:
        parse_offer([tool(), G], choice, None)
    assert (caught.value.status, caught.value.param) == (400, param)


@pytest.mark.parametrize("choice", ["required", named("f"), allowed("required", "f")])
def test_nothing_can_be_required_without_tools(choice: Any) -> None:
    for tools in (None, list[Any]()):
        with pytest.raises(ApiError) as caught:
            parse_offer(tools, choice, None)
        assert str(caught.value.param).startswith("tool_choice")


@pytest.mark.parametrize(
    ("choice", "offered", "expected"),
    [
        (None, ["f", "g"], ToolChoice()),
        ("auto", ["f", "g"], ToolChoice()),
        ("none", [], ToolChoice()),
        ("required", ["f", "g"], ToolChoice("required")),
        (named("g"), ["f", "g"], ToolChoice("required", "g")),
        (allowed("auto", "g"), ["g"], ToolChoice()),
        (allowed("required", "g"), ["g"], ToolChoice("required")),
    ],
)
def test_the_choice_decides_what_may_and_must_be_called(
    choice: Any, offered: list[str], expected: ToolChoice
) -> None:
    offer = parse_offer([tool(), G], choice, None)
    assert names_of(offer.tools) == offered
    assert offer.choice == expected


def test_parallel_calls_are_the_default() -> None:
    assert [parse_offer([G], None, given).choice.parallel for given in (None, True, False)] == [
        True,
        True,
        False,
    ]


async def test_tools_reach_the_engine_as_they_came() -> None:
    engine = MockEngine("mock")
    full = tool(description="d", strict=True, parameters={"type": "object", "properties": {}})
    answer = await chat(
        make_app(engine),
        tools=[full, G],
        tool_choice="auto",
        parallel_tool_calls=False,
        reasoning_effort="low",
        chat_template_kwargs={"a": [1]},
        verbosity="high",
        documents=[{"text": "x"}],
    )
    assert answer.status_code == 200
    (request,) = engine.requests
    assert isinstance(request.prompt, ChatPrompt)
    assert request.prompt.tools == (full, G)
    assert request.tool_choice == ToolChoice(parallel=False)
    assert request.prompt.documents == ({"text": "x"},)
    assert request.prompt.template_kwargs == {
        "reasoning_effort": "low",
        "enable_thinking": True,
        "a": [1],
        "verbosity": "high",
    }


async def test_thinking_can_be_asked_for_by_itself() -> None:
    engine = MockEngine("mock")
    await chat(make_app(engine), enable_thinking=False, reasoning_effort="low")
    prompt = engine.requests[0].prompt
    assert isinstance(prompt, ChatPrompt)
    assert prompt.template_kwargs == {"reasoning_effort": "low", "enable_thinking": False}


@pytest.mark.parametrize(("type", "thinks"), [("enabled", True), ("disabled", False)])
async def test_thinking_can_be_asked_for_as_deepseek_has_it(type: str, thinks: bool) -> None:
    engine = MockEngine("mock")
    await chat(make_app(engine), thinking={"type": type})
    prompt = engine.requests[0].prompt
    assert isinstance(prompt, ChatPrompt)
    assert prompt.template_kwargs == {"enable_thinking": thinks}


@pytest.mark.parametrize(
    ("thinking", "param"),
    [
        ({"type": "maybe"}, "thinking.type"),
        ({}, "thinking.type"),
        ({"type": "enabled", "budget_tokens": 9}, "thinking.budget_tokens"),
        (True, "thinking"),
    ],
)
async def test_what_is_wrong_of_it_is_named(thinking: Any, param: str) -> None:
    answer = await chat(make_app(), thinking=thinking)
    assert answer.status_code == 400
    assert answer.json()["error"]["param"] == param


async def test_a_templates_variables_are_the_callers_to_set() -> None:
    engine = MockEngine("mock")
    kwargs = {"enable_thinking": True}
    body = {"reasoning_effort": "none", "chat_template_kwargs": kwargs}
    await chat(make_app(engine), **body)
    prompt = engine.requests[0].prompt
    assert isinstance(prompt, ChatPrompt)
    assert prompt.template_kwargs == {"reasoning_effort": "none", **kwargs}
    answer = await chat(make_app(), chat_template_kwargs={"messages": []})
    assert answer.json()["error"]["param"] == "chat_template_kwargs.messages"
    answer = await chat(make_app(), reasoning_effort="huge")
    assert answer.json()["error"]["param"] == "reasoning_effort"


async def test_the_last_message_may_be_continued() -> None:
    engine = MockEngine("mock")
    wishes = {"continue_final_message": True, "add_generation_prompt": False}
    assert (await chat(make_app(engine), **wishes)).status_code == 200
    prompt = engine.requests[0].prompt
    assert isinstance(prompt, ChatPrompt)
    assert (prompt.continue_final_message, prompt.add_generation_prompt) == (True, False)
    answer = await chat(make_app(), continue_final_message=True)
    assert answer.json()["error"]["param"] == "continue_final_message"
