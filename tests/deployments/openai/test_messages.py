from __future__ import annotations

from typing import Any

import pytest

from deployments.openai.errors import ApiError
from deployments.openai.messages import parse_messages

CALL = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}


@pytest.mark.parametrize(
    ("message", "param"),
    [
        ("Hi", "messages[1]"),
        ({"content": "Hi"}, "messages[1].role"),
        ({"role": "robot", "content": "Hi"}, "messages[1].role"),
        ({"role": 5, "content": "Hi"}, "messages[1].role"),
        ({"role": "user"}, "messages[1].content"),
        ({"role": "user", "content": None}, "messages[1].content"),
        ({"role": "user", "content": 5}, "messages[1].content"),
        ({"role": "user", "content": []}, "messages[1].content"),
        ({"role": "user", "content": ["Hi"]}, "messages[1].content[0]"),
        ({"role": "user", "content": [{}]}, "messages[1].content[0].type"),
        ({"role": "user", "content": [{"type": "text"}]}, "messages[1].content[0].text"),
        ({"role": "user", "content": [{"type": "image_url"}]}, "messages[1].content[0].type"),
        ({"role": "user", "content": [{"type": "input_audio"}]}, "messages[1].content[0].type"),
        ({"role": "user", "content": [{"type": "refusal"}]}, "messages[1].content[0].type"),
        ({"role": "user", "content": "Hi", "name": 5}, "messages[1].name"),
        ({"role": "user", "content": "Hi", "mood": "sad"}, "messages[1].mood"),
        ({"role": "user", "content": "Hi", "tool_calls": [CALL]}, "messages[1].tool_calls"),
        ({"role": "assistant", "content": None}, "messages[1].content"),
        ({"role": "assistant", "tool_calls": []}, "messages[1].content"),
        ({"role": "assistant", "tool_calls": {}}, "messages[1].tool_calls"),
        ({"role": "assistant", "tool_calls": [5]}, "messages[1].tool_calls[0]"),
        ({"role": "assistant", "tool_calls": [{}]}, "messages[1].tool_calls[0].function"),
        ({"role": "assistant", "tool_calls": [{**CALL, "id": 5}]}, "messages[1].tool_calls[0].id"),
        (
            {"role": "assistant", "tool_calls": [{**CALL, "type": "custom"}]},
            "messages[1].tool_calls[0].type",
        ),
        ({"role": "assistant", "function_call": {}}, "messages[1].function_call.name"),
        ({"role": "assistant", "content": "x", "audio": {"id": "a"}}, "messages[1].audio"),
        ({"role": "tool", "content": "x"}, "messages[1].tool_call_id"),
        ({"role": "tool", "tool_call_id": "c"}, "messages[1].content"),
        ({"role": "function", "content": "x"}, "messages[1].name"),
    ],
)
def test_a_wrong_message_is_named(message: Any, param: str) -> None:
    with pytest.raises(ApiError) as caught:
        parse_messages([{"role": "user", "content": "Hi"}, message])
    assert (caught.value.status, caught.value.param) == (400, param)


def test_an_answer_may_be_sent_back_as_it_came() -> None:
    answer: dict[str, Any] = {"role": "assistant", "content": "Hi", "refusal": None}
    answer |= {"annotations": [], "audio": None, "function_call": None, "tool_calls": None}
    assert parse_messages([answer]) == ({"role": "assistant", "content": "Hi"},)


def test_an_answer_that_was_cut_while_it_reasoned_may_be_sent_back() -> None:
    thoughts = {"reasoning_content": "Hm.", "reasoning": "Hm."}
    answer: dict[str, Any] = {"role": "assistant", "content": None, "refusal": None, **thoughts}
    assert parse_messages([answer]) == ({"role": "assistant", "content": "", **thoughts},)


@pytest.mark.parametrize("role", ["system", "user", "assistant"])
def test_notes_of_other_servers_and_their_clients_are_passed_over(role: str) -> None:
    notes: dict[str, Any] = {"provider_specific_fields": {"refusal": None}, "thinking_blocks": []}
    notes |= {"reasoning_details": [{"type": "reasoning.text", "text": "Hm."}]}
    notes |= {"cache_control": {"type": "ephemeral"}}
    message = {"role": role, "content": "Hi"}
    assert parse_messages([{**message, **notes}]) == (message,)


def test_parts_are_joined() -> None:
    parts = [{"type": "text", "text": "a"}, {"type": "refusal", "refusal": "b"}]
    assert parse_messages([{"role": "assistant", "content": parts}])[0]["content"] == "a\nb"


def test_content_may_be_null_beside_calls() -> None:
    messages = [
        {"role": "assistant", "content": None, "tool_calls": [CALL]},
        {"role": "assistant", "function_call": CALL["function"]},
        {"role": "function", "name": "f", "content": None},
    ]
    assert [one["content"] for one in parse_messages(messages)] == ["", "", ""]
