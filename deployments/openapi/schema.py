"""JSON schemas, put together from smaller ones."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

Schema = dict[str, Any]

STRING: Schema = {"type": "string"}
COUNT: Schema = {"type": "integer", "minimum": 0}
FLAG: Schema = {"type": "boolean"}
NULL: Schema = {"type": "null"}
ANY_OBJECT: Schema = {"type": "object"}


def constant(value: str) -> Schema:
    """Just this string."""
    return {"type": "string", "const": value}


def one_of(*values: str) -> Schema:
    """One of these strings."""
    return {"type": "string", "enum": list(values)}


def or_null(schema: Schema) -> Schema:
    """The schema, or null: in a request that is the default everywhere."""
    return {"anyOf": [schema, NULL]}


def either(*schemas: Schema) -> Schema:
    """One of the schemas at least."""
    return {"anyOf": list(schemas)}


def listed(items: Schema, **limits: int) -> Schema:
    """An array."""
    return {"type": "array", "items": items, **limits}


def some(items: Schema) -> Schema:
    """An array that is not empty."""
    return listed(items, minItems=1)


def shape(required: Sequence[str], **properties: Schema) -> Schema:
    """An object that may have more."""
    return {"type": "object", "properties": properties, "required": list(required)}


def having(**required: Schema) -> Schema:
    """An object that has all of these, and perhaps more."""
    return shape([*required], **required)


def tagged(type: str, **fields: Schema) -> Schema:
    """An object of this type with all of the fields."""
    return having(type={"const": type}, **fields)


def fields(optional: dict[str, Schema] | None = None, /, **required: Schema) -> Schema:
    """An object that has all of these, perhaps the optional ones, and no others."""
    return {
        "type": "object",
        "properties": {**required, **(optional or {})},
        "required": list(required),
        "additionalProperties": False,
    }


def ref(name: str) -> Schema:
    """A schema of the document."""
    return {"$ref": f"#/components/schemas/{name}"}
