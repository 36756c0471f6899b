"""Grammars as callers write them, in llguidance's terms."""

from __future__ import annotations

import json
import re
from typing import Any

from llguidance import LLMatcher
from llguidance.gbnf_to_lark import gbnf_to_lark

from models.closed_schema import closed
from models.errors import Invalid
from models.request import Grammar

MAX_SOURCE = 200_000  # characters

# Around the punctuation of JSON: nothing, a space, or a new line and its indentation. Without a
# bound a model may write white space for ever.
WHITESPACE = r"( |\n {0,32})?"
JSON_OPTIONS: dict[str, Any] = {"whitespace_pattern": WHITESPACE, "lenient": False}


def translate(grammar: Grammar) -> str:
    """llguidance's form of ``grammar``. Raises ``Invalid``; most mistakes show only later."""
    if len(grammar.source) > MAX_SOURCE:
        raise refusal(grammar, f"it is longer than {MAX_SOURCE} characters")
    try:
        return _translate(grammar)
    except (ValueError, TypeError, RecursionError) as error:
        raise refusal(grammar, str(error)) from error


def complaint(matcher: LLMatcher) -> str:
    """What the library says is wrong, for people."""
    error = matcher.get_error().replace("<non-verbose/>", "").strip()
    return "no text can match it" if error.startswith("NoExtension") else error


def refusal(grammar: Grammar, reason: str) -> Invalid:
    """What is wrong with a grammar, in the library's words."""
    names = {"json_object": "JSON schema", "json_schema": "JSON schema"}
    name = names.get(grammar.kind, "grammar" if grammar.kind in ("lark", "gbnf") else grammar.kind)
    message = f"Invalid {name} in '{grammar.param}': {reason.strip()}"
    return Invalid(message, grammar.param)


def _translate(grammar: Grammar) -> str:
    source = grammar.source
    match grammar.kind:
        case "json_object":
            return _schema({"type": "object"})
        case "json_schema":
            return _schema(closed(json.loads(source)))
        case "regex":
            return LLMatcher.grammar_from_regex(_with_plain_digits(source))
        case "choice":
            return LLMatcher.grammar_from_lark(_choice(json.loads(source)))
        case "lark":
            return LLMatcher.grammar_from_lark(source)
        case "gbnf":
            return LLMatcher.grammar_from_lark(_lark(source))


def _schema(schema: Any) -> str:
    if schema is True:
        schema = {}
    if not isinstance(schema, dict):
        raise ValueError("a schema must be an object")
    return LLMatcher.grammar_from_json_schema(schema, overrides=JSON_OPTIONS)  # type: ignore[arg-type]


def _with_plain_digits(regex: str) -> str:
    r"""With ``\d`` for the ten that a JSON schema's pattern means, not for those of all scripts."""
    return re.sub(r"\\(.)", lambda at: "[0-9]" if at[1] == "d" else at[0], regex, flags=re.DOTALL)


def _choice(choices: Any) -> str:
    if not isinstance(choices, list) or not choices:
        raise ValueError("there must be at least one choice")
    if not all(isinstance(choice, str) for choice in choices):
        raise ValueError("every choice must be a string")
    return "start: " + " | ".join(json.dumps(choice) for choice in choices)


def _lark(source: str) -> str:
    try:
        return gbnf_to_lark(source)
    except Exception as error:  # the converter raises all kinds
        raise ValueError(f"{error}") from error
