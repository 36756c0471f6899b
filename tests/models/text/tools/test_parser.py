"""Calls among content: what is no call is never lost."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from models.events import Text, ToolCall
from models.text.tools.calls import CERTAIN
from models.text.tools.formats import FORMATS
from models.text.tools.parser import ToolParser
from tests.models.text.saying import FUNCTIONS, Said, calling, said, say

NOW = ("call", "now", "{}")


@pytest.mark.parametrize(
    "text",
    [
        '<tool_call>{"name": "unknown", "arguments": {}}</tool_call>',
        '<tool_call>{"name": 5, "arguments": {}}</tool_call>',
        '<tool_call>{"name": "now", "arguments": 5}</tool_call>',
        '<tool_call>{"name": "now", "arguments": [1]}</tool_call>',
        '<tool_call>{"name": "now", "arguments": "no JSON"}</tool_call>',
        '<tool_call>{"name": "now", "mood": 1}</tool_call>',
        '<tool_call>{"arguments": {}}</tool_call>',
        '<tool_call>{"name": "now", "arguments": {"a": 01}}</tool_call>',
        '<tool_call>{"name": "now", "arguments": {a: 1}}</tool_call>',
        '<tool_call>{"name": "now", "arguments": {"a": 1,}}</tool_call>',
        '<tool_call>{"name": "now", "arguments": {"a": 1',
        '<tool_call>{"name": "now"',
        "<tool_call>oops</tool_call> and on",
        "<tool_call></tool_call>",
        "<tool_call>",
        "a <tool_ca",
        "</tool_call> alone",
    ],
)
def test_what_is_no_call_is_content(text: str) -> None:
    assert say(calling("hermes"), text) == [("text", text)]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("llama", '<|python_tag|>print("hi")'),
        ("llama", '{"answer": {"name": "now"}}'),
        ("json", '```json\n{"a": 1}\n```'),
        ("json", '{"name": "Ann", "arguments": {}}'),
        ("json", '[{"name": "now"'),
        ("mistral", '[TOOL_CALLS]nothing[ARGS]{"a": 1}'),
        ("mistral", "[TOOL_CALLS]" + "x" * 300),
        ("mistral", '[TOOL_CALLS]get_weather[ARGS]{"city": "Par'),
        ("deepseek", "<｜tool▁calls▁begin｜><｜tool▁calls▁end｜>"),
        ("glm", "<tool_call>two words<arg_key>a</arg_key></tool_call>"),
        ("qwen_coder", "<tool_call>\n<function=unknown>\n</function>\n</tool_call>"),
    ],
)
def test_nor_is_it_in_other_formats(name: str, text: str) -> None:
    assert say(calling(name), text) == [("text", text)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            '<tool_call>oops<tool_call>{"name": "now"}</tool_call>',
            [("text", "<tool_call>oops"), NOW],
        ),
        ('<tool_call>{"name": "now"}</tool_call>\n', [NOW]),
        ('<tool_call>{"name": "now"}</tool_call>\n\nSo.', [NOW, ("text", "So.")]),
        ('<tool_call>{"name": "now"}</tool_call> [1] So.', [NOW, ("text", "[1] So.")]),
        ('\n\n<tool_call>{"name": "now"}</tool_call>', [NOW]),
        ('<tool_call>{"name": "now"}', [NOW]),
        ('<tool_call>{"name": "now", "arguments": {}', [NOW]),
        ('<tool_call>{"name": "now", "arguments": {}</tool_call>x', [NOW, ("text", "x")]),
        ('<tool_call>[{"name": "now"}, {"name": "now"}]</tool_call>', [NOW, NOW]),
        ('<tool_call>{"arguments": {}, "name": "now"}</tool_call>', [NOW]),
        ('<tool_call>{"name": "now", "arguments": null}</tool_call>', [NOW]),
        (
            '<tool_call>{"name": "now", "arguments": "{\\"a\\": 1}"}</tool_call>',
            [("call", "now", '{"a": 1}')],
        ),
        (
            '<tool_call>{"name": "now", "arguments": {"t": "</tool_call>"}}</tool_call>',
            [("call", "now", '{"t": "</tool_call>"}')],
        ),
        (
            '<tool_call>{"name": "now", "arguments": {"t": "a\n\tb"}}</tool_call>',
            [("call", "now", '{"t": "a\\n\\tb"}')],
        ),
    ],
)
def test_a_call_and_what_is_around_it(text: str, expected: Said) -> None:
    assert say(calling("hermes"), text) == expected


def test_long_arguments_come_as_they_are_written() -> None:
    arguments = json.dumps({"city": "x" * (CERTAIN + 50)})
    text = f'<tool_call>{{"name": "get_weather", "arguments": {arguments}}}</tool_call>'
    tools = ToolParser(FORMATS["hermes"], FUNCTIONS)
    parts = [part for char in text for part in tools.push(char)]
    assert isinstance(parts[0], ToolCall)
    assert len(parts[0].arguments) == CERTAIN
    assert all(isinstance(part, ToolCall) and len(part.arguments) == 1 for part in parts[1:])
    assert said(parts) == [("call", "get_weather", arguments)]


@pytest.mark.parametrize(
    ("name", "head", "end"),
    [
        ("hermes", '<tool_call>{"name": "now", "arguments": ', "</tool_call>"),
        ("mistral", "[TOOL_CALLS]now[ARGS]", ""),
    ],
)
def test_long_arguments_that_break_are_passed_on(name: str, head: str, end: str) -> None:
    arguments = '{"a": "' + "x" * CERTAIN + '", b: 1'
    rest = [("text", "more")] if end else []
    text = head + arguments + end + "more" * bool(end)
    assert say(calling(name), text) == [("call", "now", arguments), *rest]


def test_arguments_that_are_cut_off_are_passed_on_if_long() -> None:
    arguments = '{"a": "' + "x" * CERTAIN
    text = '<tool_call>{"name": "now", "arguments": ' + arguments
    assert say(calling("hermes"), text) == [("call", "now", arguments)]
    tagged = "<tool_call>get_weather<arg_key>city</arg_key><arg_value>Par"
    assert say(calling("glm"), tagged) == [("call", "get_weather", '{"city": "Par')]


def test_without_parallel_calls_the_first_is_the_end() -> None:
    tools = ToolParser(FORMATS["hermes"], FUNCTIONS, parallel=False)
    call = '<tool_call>{"name": "now"}</tool_call>'
    parts = [*tools.push(f"a {call}{call} b"), *tools.push("c"), *tools.flush()]
    assert said(parts) == [("text", "a "), NOW]
    assert tools.ended


def test_ids_are_as_long_as_the_template_wants() -> None:
    def first_id(name: str, text: str) -> str:
        (call,) = ToolParser(FORMATS[name], FUNCTIONS).push(text)
        assert isinstance(call, ToolCall)
        assert call.id is not None
        return call.id

    assert first_id("hermes", '<tool_call>{"name": "now"}').startswith("call_")
    assert len(first_id("mistral", '[TOOL_CALLS][{"name": "now"}')) == 9


def test_content_before_a_call_is_sent_at_once() -> None:
    tools = ToolParser(FORMATS["hermes"], FUNCTIONS, 2)
    assert [*tools.push("Hello")] == [Text("Hello", 2)]
    assert [*tools.push(" <tool")] == [Text(" ", 2)]
    assert [*tools.push("s>")] == [Text("<tools>", 2)]


WORDS = ["<tool_call>", "</tool_call>", '{"name": "now"', ', "arguments": {}', "}", "x", "\n", "["]


@settings(deadline=None)
@given(st.lists(st.sampled_from(WORDS), max_size=12), st.sampled_from(sorted(FORMATS)))
def test_any_text_is_read_alike_however_it_is_cut(words: list[str], name: str) -> None:
    say(calling(name), "".join(words))
