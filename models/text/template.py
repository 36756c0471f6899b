"""A model's chat template: messages to the prompt it was trained on."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import Any, NoReturn

from jinja2 import Template, TemplateError, nodes
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment

from models.errors import Invalid
from models.request import ChatPrompt
from models.text.history import Known, adapted

# What a template's expressions raise, over messages that it was not written for.
_ERRORS = (
    TemplateError,
    ArithmeticError,
    AttributeError,
    LookupError,
    RecursionError,
    TypeError,
    ValueError,
)
CUT = "\ue000cut\ue001"  # of private characters: marks where a continued message ends


class ChatTemplate:
    """A jinja template as Hugging Face models carry it; ``special_tokens`` are its variables."""

    def __init__(self, source: str, special_tokens: Mapping[str, str]) -> None:
        self.source = source
        self._special_tokens = dict(special_tokens)
        self._known = Known.of(source)

    def render(self, prompt: ChatPrompt) -> str:
        """The prompt, up to where the answer begins.

        Raises ``Invalid`` with the template's own message if it refuses these messages.
        """
        if prompt.documents and "documents" not in self.source:
            raise Invalid("The model's chat template takes no documents.", "documents")
        messages = adapted(prompt, self._known)
        if prompt.continue_final_message:
            messages[-1]["content"] = (messages[-1]["content"] or "") + CUT
        text = self._render(prompt, messages)
        if not prompt.continue_final_message:
            return text
        before, cut, _ = text.rpartition(CUT)
        if not cut:
            message = "The chat template leaves the last message out: it cannot be continued."
            raise Invalid(message, "continue_final_message")
        return before

    def _render(self, prompt: ChatPrompt, messages: list[dict[str, Any]]) -> str:
        try:
            return self._template.render(
                {**self._special_tokens, **_by_all_names(prompt.template_kwargs)},
                messages=messages,
                tools=[dict(tool) for tool in prompt.tools] or None,
                documents=[dict(document) for document in prompt.documents] or None,
                add_generation_prompt=prompt.add_generation_prompt,
            )
        except _ERRORS as error:
            raise Invalid(str(error) or type(error).__name__, "messages") from error

    @cached_property
    def _template(self) -> Template:
        return _environment().from_string(self.source)


def _by_all_names(variables: Mapping[str, Any]) -> Mapping[str, Any]:
    """Some templates, as DeepSeek's and Granite's, call ``enable_thinking`` just ``thinking``."""
    if "enable_thinking" not in variables:
        return variables
    return {"thinking": variables["enable_thinking"], **variables}


def find_template(folder: Path, config: Mapping[str, Any]) -> str | None:
    """The template of a model's folder, ``config`` being its tokenizer_config.json."""
    file = folder / "chat_template.jinja"
    if file.is_file():
        return file.read_text(encoding="utf-8")
    template = config.get("chat_template")
    if isinstance(template, list):
        template = {entry["name"]: entry["template"] for entry in template}.get("default")
    return template if isinstance(template, str) else None


def _environment() -> ImmutableSandboxedEnvironment:
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[_Generation, loopcontrols]
    )
    environment.filters["tojson"] = _to_json
    environment.globals["raise_exception"] = _raise_exception
    environment.globals["strftime_now"] = _strftime_now
    return environment


class _Generation(Extension):
    """``{% generation %}`` marks the assistant's part for training; here its body is the output."""

    tags = {"generation"}  # noqa: RUF012

    def parse(self, parser: Parser) -> nodes.Node:
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return nodes.Scope(body, lineno=line)


def _to_json(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """jinja's own escapes HTML, which models have not seen."""
    return json.dumps(
        value,
        ensure_ascii=ensure_ascii,
        indent=indent,
        separators=separators,
        sort_keys=sort_keys,
    )


def _raise_exception(message: str) -> NoReturn:
    raise TemplateError(message)


def _strftime_now(pattern: str) -> str:
    return datetime.now().strftime(pattern)
