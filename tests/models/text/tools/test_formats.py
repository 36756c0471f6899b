"""Answers as models write them."""

from __future__ import annotations

import json

import pytest

from models.text.tools.formats import FORMATS, find_format
from tests.models.text.saying import Said, calling, say

PARIS = '{"city": "Paris"}'
CALL = ("call", "get_weather", PARIS)
NOW = ("call", "now", "{}")

ANSWERS: list[tuple[str, str, Said]] = [
    (
        "hermes",
        f'<tool_call>\n{{"name": "get_weather", "arguments": {PARIS}}}\n</tool_call>',
        [CALL],
    ),
    (
        "hermes",
        'Let me see.\n<tool_call>\n{"name": "now", "arguments": {}}\n</tool_call>\n'
        f'<tool_call>\n{{"name": "get_weather", "arguments": {PARIS}}}\n</tool_call>',
        [("text", "Let me see.\n"), NOW, CALL],
    ),
    ("llama", f'{{"name": "get_weather", "parameters": {PARIS}}}', [CALL]),
    ("llama", f'<|python_tag|>{{"name": "get_weather", "parameters": {PARIS}}}', [CALL]),
    (
        "llama",
        f'{{"name": "get_weather", "parameters": {PARIS}}}; {{"name": "now", "parameters": {{}}}}',
        [CALL, NOW],
    ),
    (
        "llama",
        f'{{"type": "function", "name": "get_weather", "parameters": {PARIS}}}',
        [CALL],
    ),
    (
        "mistral",
        f'[TOOL_CALLS] [{{"name": "get_weather", "arguments": {PARIS}}}, '
        '{"name": "now", "arguments": {}, "id": "a1b2c3d4e"}]',
        [CALL, NOW],
    ),
    ("mistral", f"[TOOL_CALLS]get_weather[ARGS]{PARIS}[TOOL_CALLS]now[ARGS]{{}}", [CALL, NOW]),
    ("mistral", f"Sure.[TOOL_CALLS]get_weather{PARIS}", [("text", "Sure."), CALL]),
    ("mistral", f"[TOOL_CALLS]get_weather[CALL_ID]a1b2c3d4e[ARGS]{PARIS}", [CALL]),
    (
        "deepseek",
        "I will look.<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>get_weather\n"
        f"```json\n{PARIS}\n```<｜tool▁call▁end｜>\n<｜tool▁call▁begin｜>function<｜tool▁sep｜>now\n"
        "```json\n{}\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
        [("text", "I will look."), CALL, NOW],
    ),
    (
        "deepseek",
        f"<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>get_weather<｜tool▁sep｜>{PARIS}"
        "<｜tool▁call▁end｜><｜tool▁call▁begin｜>now<｜tool▁sep｜>{}<｜tool▁call▁end｜>"
        "<｜tool▁calls▁end｜>",
        [CALL, NOW],
    ),
    (
        "glm",
        "\n<tool_call>get_weather\n<arg_key>city</arg_key>\n<arg_value>Paris</arg_value>\n"
        "</tool_call>\n<tool_call>now\n</tool_call>",
        [CALL, NOW],
    ),
    (
        "glm",
        "<tool_call>get_weather<arg_key>city</arg_key><arg_value>Paris</arg_value></tool_call>",
        [CALL],
    ),
    (
        "qwen_coder",
        "Sure.\n<tool_call>\n<function=get_weather>\n<parameter=city>\nParis\n</parameter>\n"
        "</function>\n</tool_call>\n<tool_call>\n<function=now>\n</function>\n</tool_call>",
        [("text", "Sure.\n"), CALL, NOW],
    ),
    ("json", f'{{"name": "get_weather", "arguments": {PARIS}}}', [CALL]),
    (
        "json",
        f'[{{"name": "get_weather", "arguments": {PARIS}}}, {{"name": "now", "arguments": {{}}}}]',
        [CALL, NOW],
    ),
    (
        "json",
        f'Here:\n```json\n{{"name": "get_weather", "arguments": {PARIS}}}\n```\nDone.',
        [("text", "Here:\n"), CALL, ("text", "Done.")],
    ),
    ("json", '```json\n{"name": "now", "arguments": {}}\n```', [NOW]),
]


@pytest.mark.parametrize(("name", "answer", "expected"), ANSWERS)
def test_an_answer_is_read_however_it_is_cut(name: str, answer: str, expected: Said) -> None:
    assert say(calling(name), answer) == expected


@pytest.mark.parametrize("name", FORMATS)
def test_text_without_calls_is_content_as_it_is(name: str) -> None:
    text = '  Look: [1], {"a": 1}; a <b> ``` x\n\n- y, \n'
    assert say(calling(name), text) == [("text", text)]


@pytest.mark.parametrize("name", ["glm", "qwen_coder"])
def test_tagged_values_follow_the_schema(name: str) -> None:
    values = {
        "city": "7",
        "days": "7",
        "unit": "C",
        "zip": "null",
        "more": '{"a": [1]}',
        "why": "so",
    }
    one = {
        "glm": "<arg_key>{}</arg_key>\n<arg_value>{}</arg_value>\n",
        "qwen_coder": "<parameter={}>\n{}\n</parameter>\n",
    }[name]
    body = "".join(one.format(key, value) for key, value in values.items())
    answer = {
        "glm": f"<tool_call>get_weather\n{body}</tool_call>",
        "qwen_coder": f"<tool_call>\n<function=get_weather>\n{body}</function>\n</tool_call>",
    }[name]
    ((_, _, arguments),) = say(calling(name), answer)
    expected = {"city": "7", "days": 7, "unit": "C", "zip": None, "more": {"a": [1]}, "why": "so"}
    assert json.loads(arguments) == expected


def test_a_tagged_value_keeps_its_lines_and_quotes() -> None:
    value = '\n  def f():\n    return "<b>"\n'
    answer = f"<tool_call>\n<function=get_weather>\n<parameter=city>\n{value}\n</parameter>\n"
    ((_, _, arguments),) = say(calling("qwen_coder"), answer + "</function>\n</tool_call>")
    assert json.loads(arguments) == {"city": value}


@pytest.mark.parametrize(
    ("template", "name"),
    [
        ("<tool_call>\n{{ call | tojson }}\n</tool_call>", "hermes"),
        ("<tool_call>\n<function={{ call.name }}>", "qwen_coder"),
        ("<tool_call>{{ name }}\n<arg_key>{{ k }}</arg_key>", "glm"),
        ("[TOOL_CALLS]{{ calls }}", "mistral"),
        ("<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>", "deepseek"),
        ("<|start_header_id|>{{ role }}", "llama"),
        ("<|im_start|>{{ role }}", "json"),
        ("", "json"),
    ],
)
def test_the_template_tells_the_format(template: str, name: str) -> None:
    assert find_format(template) is FORMATS[name]
