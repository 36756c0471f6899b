from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from starlette.applications import Starlette

from models.events import Finished, FinishReason, Usage
from models.mock import MockEngine
from models.request import ChatPrompt, GenerateRequest
from tests.deployments.calling import calling
from tests.deployments.responses.asking import RESPONSES, answer, ask
from tests.deployments.serving import Reciting, make_app, post

NAMES = ("add", "now")
TOOLS = [{"type": "function", "name": name, "parameters": {"type": "object"}} for name in NAMES]
END = Finished(FinishReason.TOOL_CALLS, Usage(3, 9))


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def named(item: dict[str, Any]) -> dict[str, str]:
    return {"type": "item_reference", "id": item["id"]}


def told(requests: Sequence[GenerateRequest]) -> list[Any]:
    """What the model was told last."""
    prompt = list(requests)[-1].prompt
    assert isinstance(prompt, ChatPrompt)
    return [message["content"] for message in prompt.messages]


async def test_clients_name_what_was_answered_before() -> None:
    engine = MockEngine("mock", pieces=["Hello"])
    app = make_app(engine)
    conversation: list[dict[str, Any]] = []
    for text in "abc":
        conversation.append(user(text))
        conversation.append(named((await answer(app, input=conversation))["output"][0]))
    assert told(engine.requests) == ["a", "Hello", "b", "Hello", "c"]
    await answer(app, input=[{"id": conversation[-1]["id"]}, user("d")])
    assert told(engine.requests) == ["Hello", "d"]


async def test_thoughts_and_calls_have_names_too() -> None:
    engine = Reciting("mock", *calling('{"b": 2}'), END)
    app = make_app(engine)
    output = (await answer(app, tools=TOOLS))["output"]
    results = [
        {"type": "function_call_output", "call_id": f"call_{i}", "output": "3"} for i in (1, 2)
    ]
    await answer(app, input=[user("x"), *map(named, output), *results], tools=TOOLS)
    prompt = engine.requests[-1].prompt
    assert isinstance(prompt, ChatPrompt)
    said = prompt.messages[1]
    assert (said["reasoning_content"], said["content"]) == ("Let me.", "So")
    assert [call["function"]["name"] for call in said["tool_calls"]] == ["add", "now"]


async def test_items_of_a_previous_response_can_be_named() -> None:
    engine = MockEngine("mock", pieces=["Hello"])
    app = make_app(engine)
    first = await answer(app, input=[{**user("a"), "id": "mine"}])
    await answer(app, previous_response_id=first["id"], input=[{"id": "mine"}])
    assert told(engine.requests) == ["a", "Hello", "a"]


async def refused(app: Starlette, id: Any) -> dict[str, Any]:
    got = await ask(app, input=[user("a"), {"type": "item_reference", "id": id}])
    error: dict[str, Any] = got.json()["error"]
    assert error["param"] == "input[1].id"
    return {**error, "status": got.status_code}


@pytest.mark.parametrize("id", ["msg_1", "msg_" + "0" * 32, "rs_" + "0" * 32 + "1"])
async def test_what_is_not_kept_is_not_found(id: str) -> None:
    error = await refused(make_app(), id)
    assert error["status"] == 404
    assert id in error["message"]


async def test_an_answer_that_was_not_kept_has_no_items_to_name() -> None:
    app = make_app()
    output = (await answer(app, store=False))["output"]
    assert (await refused(app, output[0]["id"]))["status"] == 404
    assert (await refused(make_app(responses_kept=0), output[0]["id"]))["status"] == 404
    assert (await refused(app, None))["status"] == 400


async def test_what_is_named_counts() -> None:
    app = make_app(MockEngine("mock"))
    output = (await answer(app))["output"]
    asked = {"model": "mock", "input": [named(output[0])]}
    got = await post(app, f"{RESPONSES}/input_tokens", asked)
    assert got.json()["error"]["param"] == "model"  # a tokenizer that nobody knows
