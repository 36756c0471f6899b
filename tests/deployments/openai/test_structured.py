from __future__ import annotations

import json
from typing import Any

import pytest

from deployments.openai import chat, completions
from deployments.openai.errors import ApiError
from models.request import Grammar, GrammarKind
from tests.deployments.serving import HELLO

SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}}
TEXT = json.dumps(SCHEMA)


def parsed(**extra: Any) -> Grammar | None:
    body = {"model": "m", **extra}
    one = chat.parse({**body, "messages": HELLO}, "id").requests[0].grammar
    other = completions.parse({**body, "prompt": ["a", "b"]}, "id").requests[1].grammar
    assert one == other
    return one


@pytest.mark.parametrize(
    ("name", "value", "grammar"),
    [
        ("response_format", {"type": "json_object"}, ("json_object", "")),
        ("response_format", {"type": "json_object", "schema": SCHEMA}, ("json_schema", TEXT)),
        ("response_format", {"type": "json_schema", "schema": SCHEMA}, ("json_schema", TEXT)),
        (
            "response_format",
            {"type": "json_schema", "json_schema": {"name": "x", "schema": SCHEMA}},
            ("json_schema", TEXT),
        ),
        (
            "response_format",
            {"type": "json_schema", "json_schema": {"name": "x", "strict": True, "schema": {}}},
            ("json_schema", "{}"),
        ),
        (
            "response_format",
            {"type": "json_schema", "json_schema": {"name": "x", "description": "d"}},
            ("json_object", ""),
        ),
        ("guided_json", SCHEMA, ("json_schema", TEXT)),
        ("guided_json", TEXT, ("json_schema", TEXT)),
        ("json_schema", TEXT, ("json_schema", TEXT)),
        ("guided_regex", "a+", ("regex", "a+")),
        ("regex", "a+", ("regex", "a+")),
        ("guided_choice", ["a", "b"], ("choice", '["a", "b"]')),
        ("guided_grammar", 'start: "a"', ("lark", 'start: "a"')),
        ("guided_grammar", 'root ::= "a"', ("gbnf", 'root ::= "a"')),
        ("grammar", 'root ::= "a"', ("gbnf", 'root ::= "a"')),
        ("grammar", {"type": "regex", "value": "a"}, ("regex", "a")),
        ("grammar", {"type": "json_schema", "value": SCHEMA}, ("json_schema", TEXT)),
        ("grammar", {"type": "lark", "value": "start: /a/"}, ("lark", "start: /a/")),
        ("ebnf", 'root ::= "a"', ("gbnf", 'root ::= "a"')),
    ],
)
def test_every_spelling_becomes_a_grammar(
    name: str, value: Any, grammar: tuple[GrammarKind, str]
) -> None:
    assert parsed(**{name: value}) == Grammar(*grammar, name)


@pytest.mark.parametrize(
    ("key", "value", "grammar"),
    [
        ("json", SCHEMA, ("json_schema", TEXT)),
        ("json_object", True, ("json_object", "")),
        ("regex", "a", ("regex", "a")),
        ("choice", ["a"], ("choice", '["a"]')),
        ("grammar", 'root ::= "a"', ("gbnf", 'root ::= "a"')),
    ],
)
def test_structured_outputs(key: str, value: Any, grammar: tuple[GrammarKind, str]) -> None:
    wish = {key: value, "disable_fallback": True, "disable_any_whitespace": False}
    assert parsed(structured_outputs=wish) == Grammar(*grammar, f"structured_outputs.{key}")


@pytest.mark.parametrize(
    "extra",
    [
        {},
        {"response_format": None, "guided_json": None, "structured_outputs": None},
        {"response_format": {"type": "text"}},
        {"structured_outputs": {}, "guided_choice": None},
        {"structured_outputs": {"json_object": False, "json": None}},
        {"guided_decoding_backend": "xgrammar", "guided_whitespace_pattern": None},
    ],
)
def test_nothing_asked_is_no_grammar(extra: dict[str, Any]) -> None:
    assert parsed(**extra) is None


def test_text_beside_another_spelling_is_no_conflict() -> None:
    assert parsed(response_format={"type": "text"}, regex="a") == Grammar("regex", "a", "regex")


@pytest.mark.parametrize(
    ("param", "extra"),
    [
        ("response_format", {"response_format": "json"}),
        ("response_format.type", {"response_format": {}}),
        ("response_format.type", {"response_format": {"type": "xml"}}),
        ("response_format.json_schema", {"response_format": {"type": "json_schema"}}),
        (
            "response_format.json_schema.strict",
            {"response_format": {"type": "json_schema", "json_schema": {"strict": "yes"}}},
        ),
        (
            "response_format.json_schema.shema",
            {"response_format": {"type": "json_schema", "json_schema": {"shema": {}}}},
        ),
        ("response_format", {"response_format": {"type": "json_schema", "schema": 5}}),
        ("guided_json", {"guided_json": [1]}),
        ("guided_regex", {"guided_regex": 5}),
        ("guided_choice", {"guided_choice": "a"}),
        ("guided_choice[1]", {"guided_choice": ["a", 1]}),
        ("guided_choice", {"guided_choice": []}),
        ("structured_outputs.choice", {"structured_outputs": {"choice": []}}),
        ("structured_outputs.regex", {"structured_outputs": {"regex": 0}}),
        ("structured_outputs.json", {"structured_outputs": {"json": 0.0}}),
        ("guided_grammar", {"guided_grammar": []}),
        ("grammar.type", {"grammar": {"type": "llguidance", "value": "x"}}),
        ("grammar", {"grammar": {"type": "regex"}}),
        ("structured_outputs", {"structured_outputs": "a"}),
        ("structured_outputs", {"structured_outputs": {"json": {}, "regex": "a"}}),
        ("structured_outputs.jason", {"structured_outputs": {"jason": {}}}),
        ("structured_outputs.structural_tag", {"structured_outputs": {"structural_tag": "x"}}),
        (
            "structured_outputs.disable_any_whitespace",
            {"structured_outputs": {"disable_any_whitespace": True, "json": {}}},
        ),
        ("regex", {"guided_json": {}, "regex": "a"}),
        ("guided_whitespace_pattern", {"guided_whitespace_pattern": " "}),
    ],
)
def test_what_is_wrong_is_named(param: str, extra: dict[str, Any]) -> None:
    with pytest.raises(ApiError) as refused:
        parsed(**extra)
    assert refused.value.status == 400
    assert refused.value.param == param
