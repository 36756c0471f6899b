"""Messages and tools as templates see them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from models.errors import Invalid
from models.request import ChatPrompt
from models.text.template import ChatTemplate

USER = {"role": "user", "content": "Weather?"}
CALL = {
    "id": "call_1",
    "type": "function",
    "function": {"name": "get_weather", "arguments": '{"city":"Zürich"}'},
}
CALLING = {"role": "assistant", "content": "", "tool_calls": [CALL]}
RESULT = {"role": "tool", "tool_call_id": "call_1", "content": "21°"}
TOOL = {"type": "function", "function": {"name": "get_weather", "parameters": {"type": "object"}}}
SHOW = "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}"


def render(source: str, *messages: dict[str, Any], **prompt: Any) -> str:
    return ChatTemplate(source, {}).render(ChatPrompt(messages or (USER,), **prompt))


def calls(expression: str, call: dict[str, Any] = CALL) -> str:
    """What a template that knows calls prints of one."""
    source = "{% for m in messages %}{% for c in m.tool_calls %}" + expression + "{% endfor %}"
    return render(source + "{% endfor %}", USER, {**CALLING, "tool_calls": [call]})


def test_templates_see_the_tools() -> None:
    assert json.loads(render("{{ tools | tojson }}", tools=(TOOL,))) == [TOOL]
    assert render("{{ tools is none }}") == "True"


@pytest.mark.parametrize(
    "expression",
    [
        "{{ c.function.arguments | tojson }}",
        "{{ c.function.arguments | tojson if c.function.arguments is mapping }}",
    ],
)
def test_arguments_are_a_mapping(expression: str) -> None:
    assert calls(expression) == '{"city": "Zürich"}'


@pytest.mark.parametrize(
    "expression",
    [
        "{{ c.function.arguments }}",
        "{{ '' + c.function.arguments }}",
        "{{ c.function.arguments + '' }}",
        "{{ '' ~ c.function.arguments }}",
        "{{ c.function.arguments | trim }}",
    ],
)
def test_and_json_where_a_template_takes_them_for_text(expression: str) -> None:
    assert calls(expression) == '{"city":"Zürich"}'


def test_their_keys_are_at_hand() -> None:
    assert calls("{{ c.function.arguments.city }}") == "Zürich"
    assert calls("{% for k, v in c.function.arguments.items() %}{{ k }}={{ v }}{% endfor %}") == (
        "city=Zürich"
    )


@pytest.mark.parametrize("arguments", ["no JSON", "[1]", '"x"'])
def test_arguments_that_are_no_object_stay_text(arguments: str) -> None:
    call = {**CALL, "function": {"name": "get_weather", "arguments": arguments}}
    assert calls("{{ c.function.arguments }}", call) == arguments


def test_no_arguments_are_an_empty_object() -> None:
    call = {**CALL, "function": {"name": "now", "arguments": ""}}
    assert calls("{{ c.function.arguments | tojson }}", call) == "{}"


def test_content_beside_calls_is_null_where_a_template_asks() -> None:
    source = "{% for m in messages if m.tool_calls %}{{ m['content'] is none }}{% endfor %}"
    assert render(source, USER, CALLING) == "True"
    source = "{% for m in messages if m.tool_calls %}<{{ m.content }}>{% endfor %}"
    assert render(source, USER, CALLING) == "<>"


def test_results_tell_their_functions_name() -> None:
    source = "{% for m in messages if m.role == 'tool' %}{{ m.name }}={{ m.content }}{% endfor %}"
    source += "{{ messages[1].tool_calls | length }}"
    assert render(source, USER, CALLING, RESULT) == "get_weather=21°1"


def test_the_older_form_of_calls_is_the_same() -> None:
    function_call = {"role": "assistant", "content": "", "function_call": CALL["function"]}
    result = {"role": "function", "name": "get_weather", "content": "21°"}
    source = "{% for m in messages %}{{ m.role }}{% for c in m.tool_calls %}:{{ c.function.name }}"
    source += "{% endfor %} {% endfor %}{{ 'tool' }}"
    assert render(source, USER, function_call, result) == "user assistant:get_weather tool tool"


@pytest.mark.parametrize("given", ["reasoning", "reasoning_content"])
@pytest.mark.parametrize("read", ["reasoning", "reasoning_content", "thinking"])
def test_reasoning_has_all_its_names(given: str, read: str) -> None:
    answer = {"role": "assistant", "content": "So.", given: "Hm."}
    assert render("{{ messages[1]." + read + " }}", USER, answer) == "Hm."


def test_a_template_without_tools_is_told_in_words() -> None:
    text = render(SHOW, {"role": "system", "content": "Be brief."}, USER, tools=(TOOL,))
    assert text.startswith("system: Be brief.\n\nYou can call functions.")
    assert json.dumps(TOOL["function"]) in text
    assert text.endswith("user: Weather?\n")
    assert render(SHOW, tools=(TOOL,)).startswith("system: You can call functions.")
    assert render(SHOW + "{{ tools | length }}", tools=(TOOL,)) == "user: Weather?\n1"


def test_so_are_calls_and_results() -> None:
    other = {**CALL, "id": "call_2", "function": {"name": "now", "arguments": "{}"}}
    two = {**CALLING, "content": "Let me see.", "tool_calls": [CALL, other]}
    results = [RESULT, {**RESULT, "tool_call_id": "call_2", "content": "noon"}]
    assert render(SHOW, USER, CALLING, RESULT) == (
        "user: Weather?\n"
        'assistant: {"name": "get_weather", "arguments": {"city": "Zürich"}}\n'
        "user: Result of get_weather: 21°\n"
    )
    text = render(SHOW, USER, two, *results, {"role": "assistant", "content": "It is warm."})
    assert "Let me see.\n[{" in text
    assert "user: Result of get_weather: 21°\nResult of now: noon\nassistant: It is warm." in text


def test_more_variables_reach_the_template() -> None:
    source = "{{ enable_thinking }} {{ add_generation_prompt }}"
    kwargs = {"enable_thinking": False}
    assert render(source, template_kwargs=kwargs) == "False True"
    assert render(source, template_kwargs=kwargs, add_generation_prompt=False) == "False False"


def test_documents_reach_a_template_that_takes_them() -> None:
    documents = ({"title": "A", "text": "a"},)
    assert render("{{ documents[0].title }}", documents=documents) == "A"
    with pytest.raises(Invalid) as refused:
        render(SHOW, documents=documents)
    assert refused.value.param == "documents"


def test_the_last_message_can_be_continued() -> None:
    source = "{% for m in messages %}<{{ m.content | trim }}>{% endfor %}"
    answer = {"role": "assistant", "content": "The answer is "}
    wishes = {"continue_final_message": True, "add_generation_prompt": False}
    assert render(source, USER, answer, **wishes) == "<Weather?><The answer is "
    with pytest.raises(Invalid) as refused:
        render("{{ messages[0].content }}", USER, answer, **wishes)
    assert refused.value.param == "continue_final_message"
    with pytest.raises(Invalid):
        ChatPrompt((USER,), continue_final_message=True)
