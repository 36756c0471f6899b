"""JSON schemas without what they leave open by saying nothing: other properties of an object.

Those would validate, but a small model goes on inventing them. The standard library only.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

# Beside these an object may have properties that other parts of the schema name.
COMBINATORS = frozenset(
    {"$ref", "allOf", "anyOf", "oneOf", "not", "if", "patternProperties", "dependentSchemas"}
)
NAMING = frozenset({"properties", "required", "patternProperties", "additionalProperties"})
INSIDE = NAMING | {"items", "prefixItems"}
APART = frozenset({"not", "if", "dependentSchemas"})  # what holds of them need not hold of a value
ONE_EACH = ("properties", "patternProperties")
LISTS = ("prefixItems", "anyOf", "oneOf", "allOf")
DEFINITIONS = ("$defs", "definitions")
DEFINED = ("#/$defs/", "#/definitions/")


def closed(schema: Any) -> Any:
    """The same, but where ``properties`` are named there are no others.

    Unless ``additionalProperties`` tells, or other parts of the schema may name more. What matches
    it matches ``schema`` too.
    """
    combined = _combines(schema)
    return schema if combined and _refers_elsewhere(schema) else _closed(schema, combined)


def _closed(schema: Any, combined: bool) -> Any:
    """``combined``: the definitions may be parts of what other parts say more about."""
    if not isinstance(schema, Mapping):
        return schema
    result = {key: _inside(schema, key, value, combined) for key, value in schema.items()}
    if _names_all(schema):
        result.setdefault("additionalProperties", False)
    return result


def _inside(schema: Mapping[str, Any], key: str, value: Any, combined: bool) -> Any:
    """The value of a keyword with the schemas closed that are for values of their own."""
    if _together(schema) or (combined and key in DEFINITIONS):
        return value
    if key in ("items", "additionalProperties"):
        return _closed(value, combined)
    if key in (*ONE_EACH, *DEFINITIONS) and isinstance(value, Mapping):
        return {name: _closed(one, combined) for name, one in value.items()}
    if key in LISTS and isinstance(value, list):
        return [_closed(one, combined) for one in value]
    return value


def _names_all(schema: Mapping[str, Any]) -> bool:
    properties = schema.get("properties")
    if not isinstance(properties, Mapping) or schema.keys() & COMBINATORS:
        return False
    required, least = schema.get("required", ()), schema.get("minProperties", 0)
    known = isinstance(required, list | tuple) and set(map(str, required)) <= properties.keys()
    return known and isinstance(least, int) and least <= len(properties)


def _together(schema: Mapping[str, Any]) -> bool:
    """Whether several parts of it say something about one object, or about what is inside it."""
    told = [key for key in ("$ref", "anyOf", "oneOf", "allOf") if key in schema]
    if "oneOf" in told and "discriminator" not in schema:
        return True  # what matches one of them must go on to match no other
    whole = schema.get("allOf", ())
    several = len(told) > 1 or not isinstance(whole, list | tuple) or len(whole) > 1
    several = several or bool(told and schema.keys() & INSIDE) or _overlap(schema)
    return several or bool(schema.keys() & APART)


def _overlap(schema: Mapping[str, Any]) -> bool:
    """Whether one property may match several patterns, or have its name beside one."""
    patterns = schema.get("patternProperties")
    return isinstance(patterns, Mapping) and len(patterns) + ("properties" in schema) > 1


def _combines(node: Any) -> bool:
    """Whether any part of a schema does so."""
    if isinstance(node, Mapping):
        return _together(node) or any(map(_combines, node.values()))
    return isinstance(node, list) and any(map(_combines, node))


def _refers_elsewhere(node: Any) -> bool:
    """Whether any part of a schema takes another for its own that stands in no definitions."""
    if isinstance(node, Mapping):
        reference = node.get("$ref")
        elsewhere = isinstance(reference, str) and not reference.startswith(DEFINED)
        return elsewhere or any(map(_refers_elsewhere, node.values()))
    return isinstance(node, list) and any(map(_refers_elsewhere, node))
