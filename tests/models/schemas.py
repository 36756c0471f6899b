"""JSON schemas of all kinds, as clients of structured outputs send them."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, Field

Schema = dict[str, Any]

TEXT: Schema = {"type": "string", "maxLength": 24}
WORD: Schema = {"type": "string", "pattern": "^[a-z]{2,12}$"}


def closed(required: str = "", /, **properties: Any) -> Schema:
    """An object of these properties only; all are required unless some are named."""
    return {
        "type": "object",
        "properties": properties,
        "required": required.split() if required else list(properties),
        "additionalProperties": False,
    }


def items(of: Any, least: int = 0, most: int = 3) -> Schema:
    return {"type": "array", "items": of, "minItems": least, "maxItems": most}


def one_of(name: str, *kinds: Schema) -> Schema:
    """A union told apart by a constant."""
    tagged = [
        closed(**{name: {"const": f"kind{i}"}}, **kind["properties"])
        for i, kind in enumerate(kinds)
    ]
    return {"oneOf": tagged, "discriminator": {"propertyName": name}}


class Address(BaseModel):
    street: str = Field(max_length=20)
    zip: str = Field(pattern=r"^\d{5}$")


class Customer(BaseModel):
    """As an SDK sends it: titles, defaults, and definitions by reference."""

    name: str = Field(max_length=20)
    address: Address
    tags: list[str] = Field(max_length=0)
    score: float | None = Field(None, ge=0, le=1)


DEEP: Schema = closed(value={"type": "integer", "minimum": 0, "maximum": 9})
for _ in range(8):
    DEEP = closed(inner=DEEP)

TREE: Schema = {
    "$defs": {
        "node": closed(
            label={"enum": ["leaf", "branch"]},
            children=items({"$ref": "#/$defs/node"}, most=1),
        )
    },
    "$ref": "#/$defs/node",
}
LIST: Schema = closed(
    head={"type": "integer", "minimum": 0, "maximum": 99},
    tail={"anyOf": [{"$ref": "#"}, {"type": "null"}]},
)
EXPRESSION: Schema = {
    "$defs": {
        "expression": {
            "anyOf": [
                {"type": "integer", "minimum": 0, "maximum": 999},
                closed(
                    op={"enum": ["+", "-", "*"]},
                    left={"type": "integer", "minimum": 0, "maximum": 9},
                    right={"$ref": "#/$defs/expression"},
                ),
            ]
        }
    },
    "$ref": "#/$defs/expression",
}
TOOL: Schema = closed(
    name={"const": "get_weather"},
    arguments=closed(city=TEXT, unit={"enum": ["celsius", "fahrenheit"]}),
)

SCHEMAS: dict[str, Schema] = {
    "flat": closed(name=TEXT, age={"type": "integer", "minimum": 0, "maximum": 130}),
    "person": closed(first=WORD, last=WORD, email={"type": "string", "format": "email"}),
    "one boolean": closed(answer={"type": "boolean"}),
    "one null": closed(nothing={"type": "null"}),
    "bare string": TEXT,
    "bare integer": {"type": "integer", "minimum": -50, "maximum": 50},
    "bare boolean": {"type": "boolean"},
    "bare null": {"type": "null"},
    "enum of strings": {"enum": ["red", "green", "blue"]},
    "enum of all types": {"enum": ["one", 2, 3.5, None, True, [1, "a"], {"b": 1}]},
    "const string": {"const": "exactly this"},
    "const object": {"const": {"a": [1, 2, {"b": None}], "c": "é"}},
    "enum in object": closed(status={"enum": ["open", "closed"]}, priority={"enum": [1, 2, 3]}),
    "large enum": {"enum": [f"value {i}" for i in range(500)]},
    "sentiment": closed(
        sentiment={"enum": ["positive", "negative", "neutral"]},
        confidence={"type": "number", "minimum": 0, "maximum": 1},
    ),
    "array of words": items(WORD, least=1),
    "array of numbers": items({"type": "number", "minimum": -10, "maximum": 10}, least=2, most=4),
    "array of exactly two": items({"type": "boolean"}, least=2, most=2),
    "empty array": items(TEXT, most=0),
    "array of objects": items(closed(x={"type": "integer", "minimum": 0, "maximum": 99}), least=2),
    "matrix": items(
        items({"type": "integer", "minimum": 0, "maximum": 9}, least=2, most=2), least=2, most=2
    ),
    "tuple": {
        "type": "array",
        "prefixItems": [TEXT, {"type": "integer", "minimum": 0, "maximum": 9}],
        "items": False,
        "minItems": 2,
    },
    "tuple and more": {
        "type": "array",
        "prefixItems": [{"const": "head"}],
        "items": {"type": "boolean"},
        "minItems": 1,
        "maxItems": 3,
    },
    "integer bounds": closed(n={"type": "integer", "minimum": 17, "maximum": 1234}),
    "exclusive bounds": closed(
        n={"type": "integer", "exclusiveMinimum": -3, "exclusiveMaximum": 3}
    ),
    "number bounds": closed(x={"type": "number", "minimum": 0.25, "maximum": 0.75}),
    "number above": closed(x={"type": "number", "exclusiveMinimum": 0, "maximum": 100}),
    "multiple of": closed(n={"type": "integer", "multipleOf": 5, "minimum": 0, "maximum": 100}),
    "string lengths": closed(s={"type": "string", "minLength": 3, "maxLength": 8}),
    "pattern": closed(code={"type": "string", "pattern": "^[A-Z]{3}-\\d{2,4}$"}),
    "phone": closed(phone={"type": "string", "pattern": "^\\(\\d{3}\\) \\d{3}-\\d{4}$"}),
    "alternatives in a pattern": closed(v={"type": "string", "pattern": "^(v\\d+|latest)$"}),
    "date": closed(day={"type": "string", "format": "date"}),
    "date and time": closed(at={"type": "string", "format": "date-time"}),
    "time": closed(at={"type": "string", "format": "time"}),
    "uuid": closed(id={"type": "string", "format": "uuid"}),
    "ipv4": closed(ip={"type": "string", "format": "ipv4"}),
    "email": closed(to={"type": "string", "format": "email"}),
    "any of": {"anyOf": [{"type": "integer", "minimum": 0, "maximum": 9}, {"const": "none"}]},
    "nullable": closed(name={"anyOf": [TEXT, {"type": "null"}]}),
    "list of types": closed(v={"type": ["boolean", "null"]}),
    "disjoint one of": {"oneOf": [{"type": "boolean"}, {"enum": ["unknown"]}]},
    "tagged union": one_of("type", closed(radius=DEEP), closed(side={"enum": [1, 2]})),
    "array of a union": items(
        one_of("kind", closed(text=WORD), closed(level={"enum": [1, 2, 3]})), least=1, most=2
    ),
    "all of": {
        "allOf": [
            {"type": "object", "properties": {"a": {"enum": [1, 2]}}, "required": ["a"]},
            {"properties": {"b": {"type": "boolean"}}, "required": ["b"]},
        ],
    }
    | {"type": "object", "properties": {"a": {}, "b": {}}, "additionalProperties": False},
    "optional properties": closed("a", a={"enum": [1]}, b={"type": "boolean"}, c=WORD),
    "only optional": {
        "type": "object",
        "properties": {f"p{i}": {"type": "boolean"} for i in range(20)},
        "additionalProperties": False,
    },
    "many required": closed(**{f"field{i}": {"type": "boolean"} for i in range(25)}),
    "empty object": closed(),
    "map of bounded keys": {
        "type": "object",
        "patternProperties": {"^[ab]$": {"type": "boolean"}},
        "additionalProperties": False,
    },
    "typed and more": {
        "type": "object",
        "properties": {"id": {"enum": [7]}},
        "required": ["id"],
        "additionalProperties": {"type": "boolean"},
        "maxProperties": 3,
    },
    "deep": DEEP,
    "object in array in object": closed(rows=items(closed(cells=items({"enum": [0, 1]}))), n=WORD),
    "reference": {
        "$defs": {"point": closed(x={"enum": [0, 1]}, y={"enum": [0, 1]})},
        **closed(start={"$ref": "#/$defs/point"}, end={"$ref": "#/$defs/point"}),
    },
    "definitions": {
        "definitions": {"colour": {"enum": ["red", "blue"]}},
        **closed(colour={"$ref": "#/definitions/colour"}),
    },
    "recursive tree": TREE,
    "recursive list": LIST,
    "recursive expression": EXPRESSION,
    "pydantic": {**Customer.model_json_schema(), "additionalProperties": False},
    "tool call": TOOL,
    "unicode keys": closed(**{"größe": {"enum": [1, 2]}, "名前": WORD, 'a "b"': {"const": 1}}),
    "annotated": {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": "https://example.com/annotated",
        "title": "Annotated",
        "description": "All that means nothing here.",
        **closed(x={"type": "boolean", "default": True, "examples": [False], "readOnly": True}),
    },
}
