"""A model's chat template: messages to the prompt it was trained on."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import Any, NoReturn

from jinja2 import Template, TemplateError, nodes
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment

from models.errors import Invalid

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


class ChatTemplate:
    """A jinja template as Hugging Face models carry it; ``special_tokens`` are its variables."""

    def __init__(self, source: str, special_tokens: Mapping[str, str]) -> None:
        self._source = source
        self._special_tokens = dict(special_tokens)

    def render(self, messages: Sequence[Mapping[str, Any]]) -> str:
        """The prompt, up to where the answer begins.

        Raises ``Invalid`` with the template's own message if it refuses these messages.
        """
        try:
            return self._template.render(
                self._special_tokens,
                messages=[self._known_role(message) for message in messages],
                tools=None,
                documents=None,
                add_generation_prompt=True,
            )
        except _ERRORS as error:
            raise Invalid(str(error) or type(error).__name__, "messages") from error

    def _known_role(self, message: Mapping[str, Any]) -> dict[str, Any]:
        if message.get("role") == "developer" and "developer" not in self._source:
            return {**message, "role": "system"}
        return dict(message)

    @cached_property
    def _template(self) -> Template:
        return _environment().from_string(self._source)


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
