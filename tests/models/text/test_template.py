"""Chat templates as Hugging Face models carry them."""

from pathlib import Path
from typing import Any

import pytest

from models.errors import Invalid
from models.request import ChatPrompt
from models.text.template import ChatTemplate, find_template

USER = {"role": "user", "content": "Hi"}
ROLES = "{% for message in messages %}{{ message.role }};{% endfor %}"


def render(source: str, *messages: dict[str, Any], **special_tokens: str) -> str:
    return ChatTemplate(source, special_tokens).render(ChatPrompt(messages or (USER,)))


def refusal(source: str, *messages: dict[str, Any]) -> str:
    with pytest.raises(Invalid) as refused:
        render(source, *messages)
    assert refused.value.param == "messages"
    return refused.value.message


def test_it_sees_messages_special_tokens_and_where_the_answer_begins() -> None:
    source = (
        "{{ bos_token }}{% for m in messages %}{{ m['role'] + ':' + m.content }}{% endfor %}"
        "{% if add_generation_prompt %}>{% endif %}{{ tools is none }}{{ documents is none }}"
    )
    assert render(source, bos_token="<s>") == "<s>user:Hi>TrueTrue"


def test_blocks_leave_no_white_space() -> None:
    assert render("{% if true %}\nyes\n    {% endif %}\nend") == "yes\nend"


def test_loop_controls() -> None:
    assert (
        render("{% for i in range(9) %}{{ i }}{% if i == 2 %}{% break %}{% endif %}{% endfor %}")
        == "012"
    )


def test_generation_blocks_render_their_body() -> None:
    source = "{% generation %}{{ messages[0].content }}{% endgeneration %}!"
    assert render(source) == "Hi!"


def test_json_escapes_neither_html_nor_other_scripts() -> None:
    message = {"role": "user", "content": "<é & '日'>"}
    assert render("{{ messages[0] | tojson }}", message) == (
        '{"role": "user", "content": "<é & \'日\'>"}'
    )
    assert render("{{ {'b': 1, 'a': 2} | tojson(indent=1, sort_keys=true) }}") == (
        '{\n "a": 2,\n "b": 1\n}'
    )
    assert render("{{ ['é'] | tojson(ensure_ascii=true, separators=(',', ':')) }}") == '["\\u00e9"]'


def test_the_date_of_today() -> None:
    assert render("{{ strftime_now('%Y') }}").isdigit()


def test_its_own_error_is_the_callers_to_read() -> None:
    source = "{{ raise_exception('Roles must alternate: ' + messages[0].role) }}"
    assert refusal(source) == "Roles must alternate: user"


def test_a_syntax_error_is_told() -> None:
    assert "Unexpected end of template" in refusal("{% if true %}")


def test_an_undefined_value_is_told() -> None:
    assert refusal("{{ nothing.at.all }}") == "'nothing' is undefined"


def test_messages_it_was_not_written_for_are_told() -> None:
    message = {"role": "user", "content": None}
    assert "NoneType" in refusal("{{ 'a' + messages[0].content }}", message)


@pytest.mark.parametrize(
    "source",
    ["{{ messages.append(1) }}", "{{ messages[0].update(a=1) }}", "{{ ''.__class__.mro() }}"],
)
def test_it_can_neither_change_nor_escape(source: str) -> None:
    assert "unsafe" in refusal(source) or "is not safely callable" in refusal(source)


def test_developer_is_system_where_the_template_knows_no_developer() -> None:
    messages = {"role": "developer", "content": "Be brief."}, USER
    assert render(ROLES, *messages) == "system;user;"
    assert render(ROLES + "{# developer #}", *messages) == "developer;user;"
    assert messages[0]["role"] == "developer"


def test_system_messages_at_the_beginning_are_one() -> None:
    source = "{% for m in messages %}{{ m.role }}: {{ m.content }};{% endfor %}"
    one, two = {"role": "system", "content": "A"}, {"role": "developer", "content": "B"}
    assert render(source, one, two, USER, one) == "system: A\n\nB;user: Hi;system: A;"


def test_where_templates_are_found(tmp_path: Path) -> None:
    named = [{"name": "tool_use", "template": "t"}, {"name": "default", "template": "d"}]
    assert find_template(tmp_path, {}) is None
    assert find_template(tmp_path, {"chat_template": "one"}) == "one"
    assert find_template(tmp_path, {"chat_template": named}) == "d"
    assert find_template(tmp_path, {"chat_template": named[:1]}) is None
    (tmp_path / "chat_template.jinja").write_text("file é", encoding="utf-8")
    assert find_template(tmp_path, {"chat_template": "one"}) == "file é"


@pytest.mark.slow
@pytest.mark.parametrize(
    "messages",
    [
        [USER],
        [{"role": "system", "content": "Answer in <b>é</b>."}, USER],
        [USER, {"role": "assistant", "content": " Hello\n"}, {"role": "user", "content": "日本?"}],
    ],
)
def test_the_default_models_prompt_is_transformers_own(
    smollm2: Path, messages: list[dict[str, str]]
) -> None:
    from transformers import AutoTokenizer

    from models.request import ChatPrompt, GenerateRequest
    from models.text.loading import load_pipeline

    reference = AutoTokenizer.from_pretrained(smollm2)
    expected = reference.apply_chat_template(
        messages, add_generation_prompt=True, return_dict=False
    )
    request = GenerateRequest(id="r", prompt=ChatPrompt(tuple(messages)))
    assert list(load_pipeline(smollm2).encode(request).token_ids) == expected


def test_thinking_has_two_names() -> None:
    template = ChatTemplate("{{ enable_thinking }} {{ thinking }}", {})
    told = [
        template.render(ChatPrompt((USER,), template_kwargs=kwargs))
        for kwargs in ({}, {"enable_thinking": True}, {"enable_thinking": True, "thinking": False})
    ]
    assert told == [" ", "True True", "True False"]
