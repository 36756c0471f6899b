"""Reasoning, function calls and formats in the words of Responses."""

from __future__ import annotations

from typing import Any

import openai
import pytest

from deployments.openai.errors import ApiError
from deployments.responses.tools import parse_tools
from models.events import Finished, FinishReason, Started, ToolCall, Usage
from models.request import ChatPrompt, Grammar, ToolChoice
from tests.deployments.calling import calling
from tests.deployments.responses.asking import answer, ask, told
from tests.deployments.schemas import check
from tests.deployments.serving import Reciting, listening, make_app

ADD: dict[str, Any] = {
    "type": "function",
    "name": "add",
    "description": "Adds.",
    "parameters": {"type": "object", "properties": {"a": {"type": "integer"}}},
    "strict": True,
}
CALLING = calling("{}")
END = Finished(FinishReason.TOOL_CALLS, Usage(3, 9, 0, 2))


async def test_items_of_every_kind() -> None:
    app = make_app(Reciting("mock", *CALLING, END))
    response = await answer(app, tools=[ADD], reasoning={"effort": "low"})
    thought, message, add, now = response["output"]
    assert [item["type"] for item in (thought, message)] == ["reasoning", "message"]
    assert thought["content"] == [{"type": "reasoning_text", "text": "Let me."}]
    assert message["content"][0]["text"] == "So"
    called = [(item["call_id"], item["name"], item["arguments"]) for item in (add, now)]
    assert called == [("call_1", "add", '{"a": 1}'), ("call_2", "now", "{}")]
    assert {item["status"] for item in response["output"]} == {"completed"}
    assert len({item["id"] for item in response["output"]}) == 4
    assert response["usage"]["output_tokens_details"] == {"reasoning_tokens": 2}
    assert (response["tools"], response["reasoning"]["effort"]) == ([ADD], "low")


async def test_their_events() -> None:
    app = make_app(Reciting("mock", *CALLING, END))
    events = told((await ask(app, stream=True)).text)
    assert [event["type"].removeprefix("response.") for event in events[2:-1]] == [
        "output_item.added",
        "content_part.added",
        *["reasoning_text.delta"] * 2,
        "reasoning_text.done",
        "content_part.done",
        "output_item.done",
        "output_item.added",
        "content_part.added",
        "output_text.delta",
        "output_text.done",
        "content_part.done",
        "output_item.done",
        "output_item.added",
        *["function_call_arguments.delta"] * 2,
        "function_call_arguments.done",
        "output_item.done",
        "output_item.added",
        "function_call_arguments.delta",
        "function_call_arguments.done",
        "output_item.done",
    ]
    for event in events:
        name = event["type"].removeprefix("response.").replace("output_text", "text")
        check(f"Response{name.title().replace('.', '').replace('_', '')}Event", event)
    done = [event["item"] for event in events if event["type"].endswith("output_item.done")]
    assert done == events[-1]["response"]["output"]


async def test_only_the_item_that_was_cut_is_incomplete() -> None:
    end = Finished(FinishReason.LENGTH, Usage(3, 9))
    app = make_app(Reciting("mock", *CALLING[:-2], end))
    response = await answer(app)
    states = [item["status"] for item in response["output"]]
    assert (states, response["status"]) == (["completed", "completed", "incomplete"], "incomplete")


async def test_what_was_called_goes_into_the_next_prompt() -> None:
    engine = Reciting("mock", *CALLING, END)
    app = make_app(engine)
    first = await answer(app, tools=[ADD])
    output = {"type": "function_call_output", "call_id": "call_1", "output": "1"}
    await answer(app, input=[output], previous_response_id=first["id"])
    prompt = engine.requests[-1].prompt
    assert isinstance(prompt, ChatPrompt)
    asked, said, result = prompt.messages
    assert (asked["role"], said["content"], said["reasoning_content"]) == ("user", "So", "Let me.")
    assert [call["id"] for call in said["tool_calls"]] == ["call_1", "call_2"]
    assert result == {"role": "tool", "tool_call_id": "call_1", "content": "1"}


async def test_what_reaches_the_engine() -> None:
    engine = Reciting("mock", *CALLING, END)
    await answer(
        make_app(engine),
        tools=[ADD],
        tool_choice={"type": "function", "name": "add"},
        parallel_tool_calls=False,
        reasoning={"effort": "high", "summary": "auto"},
        text={
            "format": {"type": "json_schema", "name": "x", "schema": {}, "strict": True},
            "verbosity": "low",
        },
    )
    [request] = engine.requests
    prompt = request.prompt
    assert isinstance(prompt, ChatPrompt)
    function = {key: ADD[key] for key in ("name", "description", "parameters", "strict")}
    assert prompt.tools == ({"type": "function", "function": function},)
    assert prompt.template_kwargs == {
        "reasoning_effort": "high",
        "enable_thinking": True,
        "verbosity": "low",
    }
    assert request.tool_choice == ToolChoice("required", "add", parallel=False)
    assert request.grammar == Grammar("json_schema", "{}", "text.format")


def space(name: str, *names: str) -> dict[str, Any]:
    tools = [{**ADD, "name": one} for one in names]
    return {"type": "namespace", "name": name, "description": f"For {name}.", "tools": tools}


async def test_functions_in_namespaces() -> None:
    first, second = ToolCall(0, "call_1", "sums__add", "{}"), ToolCall(1, "call_2", "add")
    engine = Reciting("mock", Started(3, 0), first, second, END)
    app, tools = make_app(engine), [space("sums", "add", "take"), ADD]
    response = await answer(app, tools=tools)
    called = [(item.get("namespace"), item["name"]) for item in response["output"]]
    assert called == [("sums", "add"), (None, "add")]
    assert response["tools"] == tools
    await answer(app, tools=tools, input=[{**response["output"][0], "status": None}])
    prompt = engine.requests[-1].prompt
    assert isinstance(prompt, ChatPrompt)
    functions = {tool["function"]["name"]: tool["function"] for tool in prompt.tools}
    assert list(functions) == ["sums__add", "sums__take", "add"]
    assert functions["sums__add"]["description"] == "For sums.\nAdds."
    assert functions["sums__take"]["description"] == "Adds."
    assert prompt.messages[0]["tool_calls"][0]["function"]["name"] == "sums__add"


@pytest.mark.parametrize(
    ("tools", "param"),
    [
        ([space("a"), {**ADD, "name": "?"}], "tools[1].name"),
        ([ADD, space("a", "b", "?")], "tools[1].tools[1].name"),
        ([{**space("a"), "name": None}], "tools[0].name"),
        ([{**space("a"), "tools": None}], "tools[0].tools"),
        ([{**space("a"), "tools": [{"type": "custom", "name": "x"}]}], "tools[0].tools[0].type"),
        ([{**space("a"), "strict": True}], "tools[0].strict"),
        ([{**space("a"), "tools": [space("b", "c")]}], "tools[0].tools[0].type"),
        ([space("a", "b"), {**ADD, "name": "a__b"}], "tools[1].name"),
    ],
)
def test_mistakes_in_them_name_their_place(tools: list[Any], param: str) -> None:
    with pytest.raises(ApiError) as caught:
        parse_tools(tools, None, None)
    assert caught.value.param == param


def test_the_official_client_reads_them() -> None:
    with listening(make_app(Reciting("mock", *CALLING, END))) as url:
        client = openai.OpenAI(base_url=f"{url}/v1", api_key="x")
        tools: Any = [ADD]
        with client, client.responses.stream(model="mock", input="x", tools=tools) as stream:
            response = stream.get_final_response()
    calls = [item for item in response.output if item.type == "function_call"]
    assert [call.name for call in calls] == ["add", "now"]
    assert calls[0].parsed_arguments == {"a": 1}


def test_choices() -> None:
    assert parse_tools([ADD], "required", None).choice == ToolChoice("required")
    assert parse_tools([ADD], "none", None).tools == ()
    allowed = {
        "type": "allowed_tools",
        "mode": "auto",
        "tools": [{"type": "function", "name": "b"}],
    }
    offer = parse_tools([ADD, {**ADD, "name": "b"}], allowed, None)
    assert [tool["function"]["name"] for tool in offer.tools] == ["b"]


@pytest.mark.parametrize(
    ("tools", "choice", "param"),
    [
        ({}, None, "tools"),
        ([1], None, "tools[0]"),
        ([{"type": "web_search"}], None, "tools[0].type"),
        ([{**ADD, "name": "a b"}], None, "tools[0].name"),
        ([{**ADD, "parameters": 1}], None, "tools[0].parameters"),
        ([{**ADD, "defer_loading": True}], None, "tools[0].defer_loading"),
        ([ADD], "any", "tool_choice"),
        ([ADD], 1, "tool_choice"),
        ([ADD], {"type": "function"}, "tool_choice.name"),
        ([ADD], {"type": "function", "name": "b"}, "tool_choice.name"),
        ([ADD], {"type": "web_search"}, "tool_choice.type"),
        ([ADD], {"type": "allowed_tools", "mode": "auto"}, "tool_choice.tools"),
        ([ADD], {"type": "allowed_tools", "mode": "x", "tools": [1]}, "tool_choice.mode"),
        (None, "required", "tool_choice"),
    ],
)
def test_mistakes_name_the_field(tools: Any, choice: Any, param: str) -> None:
    with pytest.raises(ApiError) as caught:
        parse_tools(tools, choice, None)
    assert caught.value.param == param
