"""What an answer must be: ``response_format``, ``structured_outputs``, and other servers' names.

Each is always enforced, strict or not, so what cannot be enforced is refused.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from deployments.openai.checks import require_array, require_object, require_string
from deployments.openai.errors import invalid, not_one_of, unknown, wrong_type
from deployments.openai.parameters import unsupported
from models.request import Grammar

Parse = Callable[[Any, str], Grammar | None]  # a value that is not null, and its name


def take_grammar(extras: dict[str, Any]) -> Grammar | None:
    """The one grammar that ``extras`` ask for, all of whose names are taken out.

    Raises ``ApiError``.
    """
    given = {name: extras.pop(name, None) for name in PARSERS}
    found = [_parse(PARSERS[name], value, name) for name, value in given.items()]
    grammars = [grammar for grammar in found if grammar is not None]
    if len(grammars) > 1:
        first, second = grammars[0].param, grammars[1].param
        message = f"Only one of '{first}' and '{second}' may be given."
        raise invalid(message, second, "invalid_parameter_combination")
    return grammars[0] if grammars else None


def _parse(parse: Parse, value: Any, name: str) -> Grammar | None:
    return None if value is None else parse(value, name)


def response_format(value: Any, param: str) -> Grammar | None:
    """By the object of this type; None for plain text. Raises ``ApiError``."""
    fields = require_object(value, param)
    match fields.get("type"):
        case "text":
            return None
        case "json_object":  # llama.cpp takes a schema here too
            schema = fields.get("schema")
            return Grammar("json_object", "", param) if schema is None else _schema(schema, param)
        case "json_schema":
            return _named_schema(fields, param)
    raise not_one_of(f"{param}.type", ("text", "json_object", "json_schema"))


def _named_schema(fields: Mapping[str, Any], param: str) -> Grammar:
    if fields.get("json_schema") is None and fields.get("schema") is not None:
        return _schema(fields["schema"], param)
    named = require_object(fields.get("json_schema"), f"{param}.json_schema")
    for key in named:
        if key not in ("name", "description", "schema", "strict"):
            raise unknown(f"{param}.json_schema.{key}")
    if not isinstance(named.get("strict"), bool | None):
        raise wrong_type("a boolean", named["strict"], f"{param}.json_schema.strict")
    schema = named.get("schema")
    return Grammar("json_object", "", param) if schema is None else _schema(schema, param)


def _structured_outputs(value: Any, param: str) -> Grammar | None:
    asked = require_object(value, param)
    given = {key: one for key, one in asked.items() if one is not None and one is not False}
    given.pop("disable_fallback", None)  # there is nothing to fall back to
    for key in given:
        if key in ("structural_tag", "whitespace_pattern") or key.startswith("disable_"):
            raise unsupported(f"{param}.{key}")
        if key not in STRUCTURED:
            raise unknown(f"{param}.{key}")
    if len(given) > 1:
        message = f"'{param}' must hold only one of {', '.join(STRUCTURED)}."
        raise invalid(message, param, "invalid_parameter_combination")
    for key, one in given.items():
        return STRUCTURED[key](one, f"{param}.{key}")
    return None


def _schema(value: Any, param: str) -> Grammar:
    """A schema, or its text."""
    if isinstance(value, str):
        return Grammar("json_schema", value, param)
    if not isinstance(value, dict | bool):
        raise wrong_type("an object", value, param)
    return Grammar("json_schema", json.dumps(value), param)


def _regex(value: Any, param: str) -> Grammar:
    return Grammar("regex", require_string(value, param), param)


def _choice(value: Any, param: str) -> Grammar:
    require_array(value, param, "an array of strings")
    if not value:
        raise invalid(f"'{param}' must hold at least one string.", param, "empty_array")
    for i, one in enumerate(value):
        require_string(one, f"{param}[{i}]")
    return Grammar("choice", json.dumps(value), param)


def _grammar(value: Any, param: str) -> Grammar:
    """Lark, or llama.cpp's notation; or an object that says what it is."""
    if not isinstance(value, dict):
        text = require_string(value, param)
        return Grammar("gbnf" if "::=" in text else "lark", text, param)
    match value.get("type"):
        case "regex":
            return _regex(value.get("value"), param)
        case "json_schema":
            return _schema(value.get("value"), param)
        case "lark":
            return Grammar("lark", require_string(value.get("value"), param), param)
    raise not_one_of(f"{param}.type", ("regex", "json_schema", "lark"))


def _ebnf(value: Any, param: str) -> Grammar:
    return Grammar("gbnf", require_string(value, param), param)


def _any_object(value: Any, param: str) -> Grammar:
    if value is not True:
        raise wrong_type("a boolean", value, param)
    return Grammar("json_object", "", param)


STRUCTURED: Mapping[str, Parse] = {
    "json": _schema,
    "json_object": _any_object,
    "regex": _regex,
    "choice": _choice,
    "grammar": _grammar,
}
PARSERS: Mapping[str, Parse] = {
    "response_format": response_format,
    "structured_outputs": _structured_outputs,
    "guided_json": _schema,
    "guided_regex": _regex,
    "guided_choice": _choice,
    "guided_grammar": _grammar,
    "json_schema": _schema,
    "regex": _regex,
    "grammar": _grammar,
    "ebnf": _ebnf,
}
