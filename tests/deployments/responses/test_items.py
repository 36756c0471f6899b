from __future__ import annotations

from typing import Any

import pytest

from deployments.openai.errors import ApiError
from deployments.responses.items import parse_input, to_messages


def messages(value: Any, instructions: str | None = None) -> list[Any]:
    return list(to_messages(instructions, parse_input(value)))


def said(role: str, text: str) -> dict[str, Any]:
    return {"role": role, "content": text}


CALL = {"type": "function_call", "call_id": "c1", "name": "add", "arguments": "{}"}


def test_a_text_is_a_message_of_the_user() -> None:
    assert messages("Hi") == [said("user", "Hi")]
    [item] = parse_input("Hi")
    assert item["id"].startswith("msg_")
    assert item["content"] == [{"type": "input_text", "text": "Hi"}]


def test_messages_of_every_kind() -> None:
    value = [
        {"role": "developer", "content": "a"},
        {"role": "user", "content": [{"type": "input_text", "text": t} for t in "bc"]},
        {"type": "message", "role": "assistant", "id": "msg_1", "status": "completed",
         "content": [{"type": "output_text", "text": "d", "annotations": []}]},
        {"role": "assistant", "content": [{"type": "refusal", "refusal": "e"}]},
        {"role": "user", "content": "f", "phase": None},
    ]  # fmt: skip
    assert messages(value, "Be brief.") == [
        said("system", "Be brief."),
        said("developer", "a"),
        said("user", "b\nc"),
        said("assistant", "d"),
        said("assistant", "e"),
        said("user", "f"),
    ]
    assert parse_input(value)[2]["id"] == "msg_1"


def test_what_one_answer_thought_said_and_called_is_one_message() -> None:
    thought = {
        "type": "reasoning",
        "summary": [],
        "content": [{"type": "reasoning_text", "text": "hm"}],
    }
    output = {"type": "function_call_output", "call_id": "c1", "output": "3"}
    answer, result, then = messages(
        [
            {"role": "user", "content": "x"},
            thought,
            {"role": "assistant", "content": "Wait"},
            CALL,
            {**CALL, "call_id": "c2"},
            output,
            {"role": "user", "content": "y"},
        ]
    )[1:]
    assert (answer["content"], answer["reasoning_content"]) == ("Wait", "hm")
    assert [call["id"] for call in answer["tool_calls"]] == ["c1", "c2"]
    assert answer["tool_calls"][0]["function"] == {"name": "add", "arguments": "{}"}
    assert result == {"role": "tool", "tool_call_id": "c1", "content": "3"}
    assert then == said("user", "y")


def test_a_call_alone_is_an_answer() -> None:
    [message] = messages([CALL])
    assert (message["role"], message["content"]) == ("assistant", "")


@pytest.mark.parametrize(
    ("value", "param"),
    [
        (None, "input"),
        (1, "input"),
        ([1], "input[0]"),
        ([{}], "input[0].type"),
        ([{"type": "item_reference", "id": "x"}], "input[0].type"),
        ([{"type": ["message"]}], "input[0].type"),
        ([{"role": "tool", "content": "x"}], "input[0].role"),
        ([{"role": ["user"], "content": "x"}], "input[0].role"),
        ([{"role": "user"}], "input[0].content"),
        ([{"role": "user", "content": "x", "id": 1}], "input[0].id"),
        ([{"role": "user", "content": [1]}], "input[0].content[0]"),
        ([{"role": "user", "content": [{"type": "input_image"}]}], "input[0].content[0].type"),
        ([{"role": "user", "content": [{"type": "input_text"}]}], "input[0].content[0].text"),
        ([{**CALL, "arguments": {}}], "input[0].arguments"),
        ([{"type": "function_call_output", "call_id": "c"}], "input[0].output"),
        ([{"type": "reasoning", "summary": "x"}], "input[0].summary"),
    ],
)
def test_mistakes_name_the_field(value: Any, param: str) -> None:
    with pytest.raises(ApiError) as caught:
        parse_input(value)
    assert (caught.value.status, caught.value.param) == (400, param)
