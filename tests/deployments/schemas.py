"""OpenAI's own schemas, where they are at hand."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

FILE = Path(__file__).parents[3] / "shared" / "openai" / "schemas.json"


def check(name: str, value: Any) -> None:
    """Fails if the value is not valid; skips where there are no schemas."""
    validator(name).validate(value)


@cache
def validator(name: str) -> Draft202012Validator:
    if not FILE.exists():
        pytest.skip(f"OpenAI's schemas are not at {FILE}")
    document = json.loads(FILE.read_text())
    _repair(document)
    _allow_null_logprobs(document["components"]["schemas"])
    return Draft202012Validator({**document, "$ref": f"#/components/schemas/{name}"})


def _repair(node: Any) -> None:
    """``nullable`` is 3.0's way to say "or null"; logprobs and text chunks may hold null."""
    if isinstance(node, list):
        for one in node:
            _repair(one)
    elif isinstance(node, dict):
        for one in node.values():
            _repair(one)
        if node.pop("nullable", False) is True:
            _allow_null(node)


def _allow_null_logprobs(schemas: dict[str, Any]) -> None:
    """The first token of an echo has no logprob."""
    choice = schemas["CreateCompletionResponse"]["properties"]["choices"]["items"]
    for schema in choice["properties"]["logprobs"]["anyOf"]:
        for name in ("token_logprobs", "top_logprobs"):
            if "properties" in schema:
                _allow_null(schema["properties"][name]["items"])


def _allow_null(node: dict[str, Any]) -> None:
    schema = dict(node)
    node.clear()
    node["anyOf"] = [schema, {"type": "null"}]


def check_text_chunk(value: dict[str, Any]) -> None:
    """A chunk of ``/v1/completions``: OpenAI's schema is that of the whole answer.

    Its chunks have null where the end is not yet known, as OpenAI's own do.
    """
    whole = json.loads(json.dumps(value))
    for choice in whole["choices"]:
        choice["finish_reason"] = choice["finish_reason"] or "stop"
    if whole.get("usage", ...) is None:
        del whole["usage"]
    check("CreateCompletionResponse", whole)
