from __future__ import annotations

import json
from typing import Any

import pytest

from deployments.anthropic.turns import parse_system, parse_turns
from deployments.openai.errors import ApiError

HI = {"role": "user", "content": "Hi"}


def text(value: str) -> dict[str, Any]:
    return {"type": "text", "text": value, "cache_control": {"type": "ephemeral"}}


def turns(*messages: Any) -> list[dict[str, Any]]:
    return list(parse_turns(messages))


def test_texts_and_text_blocks() -> None:
    assert turns(HI) == [HI]
    blocks = {"role": "user", "content": [text("a"), text("b")]}
    assert turns(blocks) == [{"role": "user", "content": "a\nb"}]


@pytest.mark.parametrize(
    ("system", "content"), [("Be brief.", "Be brief."), ([text("a"), text("b")], "a\nb")]
)
def test_a_system_prompt_is_the_first_message(system: Any, content: str) -> None:
    assert parse_system(system) == ({"role": "system", "content": content},)


@pytest.mark.parametrize("system", [None, "", []])
def test_no_system_prompt(system: Any) -> None:
    assert parse_system(system) == ()


def test_turns_of_one_role_are_one() -> None:
    said = {"role": "assistant", "content": "Hello"}
    assert turns(HI, HI, said, said, HI) == [
        {"role": "user", "content": "Hi\nHi"},
        {"role": "assistant", "content": "Hello\nHello"},
        HI,
    ]


def test_the_use_of_a_tool_and_its_result() -> None:
    use = {"type": "tool_use", "id": "t1", "name": "add", "input": {"a": 1}}
    result = {"type": "tool_result", "tool_use_id": "t1", "content": [text("2")], "is_error": False}
    call, answer, then = turns(
        HI,
        {"role": "assistant", "content": [{"type": "thinking", "thinking": "hm"}, text("So"), use]},
        {"role": "user", "content": [result, text("Go on")]},
    )[1:]
    assert call["content"] == "So"
    assert call["reasoning_content"] == "hm"
    [made] = call["tool_calls"]
    assert (made["id"], made["type"], made["function"]["name"]) == ("t1", "function", "add")
    assert json.loads(made["function"]["arguments"]) == {"a": 1}
    assert answer == {"role": "tool", "tool_call_id": "t1", "content": "2"}
    assert then == {"role": "user", "content": "Go on"}


def test_thoughts_that_say_nothing_here_are_passed_over() -> None:
    thoughts = [
        {"type": "redacted_thinking", "data": "x"},
        {"type": "thinking", "thinking": "", "signature": "s"},
    ]
    said = {"role": "assistant", "content": [*thoughts, text("So")]}
    assert turns(HI, said, HI)[1] == {"role": "assistant", "content": "So"}


def test_results_alone_are_no_turn_of_the_user() -> None:
    results = [{"type": "tool_result", "tool_use_id": id} for id in "ab"]
    assert [one["role"] for one in turns(HI, {"role": "user", "content": results})] == [
        "user",
        "tool",
        "tool",
    ]


@pytest.mark.parametrize(
    ("message", "param"),
    [
        ("Hi", "messages[0]"),
        ({"content": "Hi"}, "messages[0].role"),
        ({"role": "tool", "content": "Hi"}, "messages[0].role"),
        ({"role": "user"}, "messages[0].content"),
        ({"role": "user", "content": 1}, "messages[0].content"),
        ({"role": "user", "content": "Hi", "name": "x"}, "messages[0].name"),
        ({"role": "user", "content": ["Hi"]}, "messages[0].content[0]"),
        (
            {"role": "user", "content": [text("a"), {"type": "image"}]},
            "messages[0].content[1].type",
        ),
        ({"role": "user", "content": [{"type": "tool_use"}]}, "messages[0].content[0].type"),
        ({"role": "user", "content": [{"type": "text"}]}, "messages[0].content[0].text"),
        ({"role": "user", "content": [{"type": ["text"]}]}, "messages[0].content[0].type"),
        ({"role": "assistant", "content": [{"type": "tool_use"}]}, "messages[0].content[0].input"),
        (
            {"role": "assistant", "content": [{"type": "redacted_thinking"}]},
            "messages[0].content[0].data",
        ),
        (
            {"role": "user", "content": [{"type": "tool_result"}]},
            "messages[0].content[0].tool_use_id",
        ),
        ({"role": "system", "content": [{"type": "image"}]}, "messages[0].content[0].type"),
        (
            {
                "role": "assistant",
                "content": [{"type": "tool_use", "id": "1", "name": "f", "input": {}}],
            },
            "messages",
        ),
    ],
)
def test_mistakes_name_the_field(message: Any, param: str) -> None:
    with pytest.raises(ApiError) as caught:
        parse_turns([message])
    assert (caught.value.status, caught.value.param) == (400, param)
    assert param in caught.value.message
