"""Which formats an answer is read by."""

from __future__ import annotations

from typing import Any

import pytest

from models.request import ChatPrompt, GenerateRequest, Grammar, TextPrompt, ToolChoice
from models.text import harmony
from models.text.byte_tokenizer import byte_tokenizer
from models.text.parsing import Reading, find_formats
from models.text.pipeline import TextPipeline
from models.text.reasoning import FORMATS as REASONING
from models.text.tools.formats import FORMATS as TOOLS
from tests.models.text.saying import said

USER = {"role": "user", "content": "Hi"}
NOW = {"type": "function", "function": {"name": "now"}}
PLAIN = '{"name": "now", "arguments": {}}'
REQUIRED = ToolChoice("required")


def request(*, tools: tuple[dict[str, Any], ...] = (), **wishes: Any) -> GenerateRequest:
    return GenerateRequest(id="r", prompt=ChatPrompt((USER,), tools=tools), **wishes)


def test_the_template_tells_all() -> None:
    formats = find_formats("<think>{{ x }}</think> <tool_call>")
    assert formats.reasoning is REASONING["think"]
    assert formats.tools is TOOLS["hermes"]
    assert find_formats("<|channel|>analysis").channels
    assert find_formats("").reasoning is None


def test_settings_have_the_last_word() -> None:
    formats = find_formats("<think><tool_call>", "off", "llama")
    assert formats.reasoning is None
    assert formats.tools is TOOLS["llama"]
    assert find_formats("", "think").reasoning is REASONING["think"]
    assert find_formats("", "auto", "harmony").channels
    assert not find_formats("<|channel|>", "off").channels


def test_without_tools_and_reasoning_nothing_is_read() -> None:
    assert find_formats("<tool_call>").parser(request()) is None
    assert find_formats("<think>").parser(request()) is not None
    raw = GenerateRequest(id="r", prompt=TextPrompt("Hi"))
    assert find_formats("<think>").parser(raw) is None


@pytest.mark.parametrize(
    ("tool_format", "wishes", "text"),
    [
        ("mistral", {"tool_choice": REQUIRED}, PLAIN),
        ("harmony", {"tool_choice": REQUIRED}, PLAIN),
        ("harmony", {"grammar": Grammar("json_object")}, PLAIN),
        ("hermes", {"tool_choice": REQUIRED}, f"<tool_call>\n{PLAIN}\n</tool_call>"),
        ("mistral", {}, f"[TOOL_CALLS][{PLAIN}]"),
        ("harmony", {}, "<|channel|>commentary to=functions.now<|message|>{}"),
    ],
)
def test_calls_under_a_grammar_are_plain_where_the_format_has_none(
    tool_format: str, wishes: dict[str, Any], text: str
) -> None:
    formats = find_formats("", tool_format=tool_format)
    parser = formats.parser(request(tools=(NOW,), **wishes))
    assert parser is not None
    assert said([*parser.push(text), *parser.flush()]) == [("call", "now", "{}")]


def test_a_grammar_that_is_no_json_leaves_no_room_for_reasoning() -> None:
    formats = find_formats("<think>")
    parser = formats.parser(request(grammar=Grammar("regex", "a+")), opened=True)
    assert parser is not None
    assert said(parser.push("aaa")) == [("text", "aaa")]


def test_it_is_known_whether_the_prompt_ends_in_reasoning() -> None:
    formats = find_formats("<think>")
    markers = frozenset({"<think>", "</think>"})
    prompt = ChatPrompt((USER,))
    assert formats.reading(prompt, "<|assistant|><think>\n") == Reading(markers, True)
    assert formats.reading(prompt, "<think>\n\n</think>\n\n") == Reading(markers, False)
    begun = {"role": "assistant", "content": "<think>Well"}
    prompt = ChatPrompt((USER, begun), continue_final_message=True, add_generation_prompt=False)
    assert formats.reading(prompt, "Well").opened


def test_only_the_markers_that_are_read_show() -> None:
    formats = find_formats("<think> [TOOL_CALLS]")
    with_tools = formats.reading(ChatPrompt((USER,), tools=(NOW,)), "").markers
    assert {"[TOOL_CALLS]", "[ARGS]", "</think>"} <= with_tools
    assert "[TOOL_CALLS]" not in formats.reading(ChatPrompt((USER,)), "").markers
    assert find_formats("<|channel|>").reading(ChatPrompt((USER,)), "").markers == set(
        harmony.MARKERS
    )


def test_a_prompt_that_opens_the_reasoning_is_found_in_its_tokens() -> None:
    def reading(**kwargs: Any) -> Reading:
        template = "{{ messages[0].content }}{% if think %}<think>\n{% endif %}"
        text = TextPipeline(
            byte_tokenizer(), special_tokens={}, chat_template=template, reasoning="think"
        )
        prompt = ChatPrompt((USER,), template_kwargs=kwargs)
        return text.encode(GenerateRequest(id="r", prompt=prompt)).reading

    assert reading(think=True).opened
    assert not reading().opened
