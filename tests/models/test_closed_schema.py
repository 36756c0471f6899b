from __future__ import annotations

from typing import Annotated, Any, Literal

import pytest
from jsonschema import Draft202012Validator
from pydantic import BaseModel, Field

from models.closed_schema import closed
from tests.models.schemas import SCHEMAS

INNER = {"type": "object", "properties": {"a": {}}}
SHUT = {**INNER, "additionalProperties": False}


def obj(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties}


def test_objects_have_no_other_properties_than_those_named() -> None:
    assert closed(obj(x=INNER, y={"type": "array", "items": INNER})) == {
        **obj(x=SHUT, y={"type": "array", "items": SHUT}),
        "additionalProperties": False,
    }
    assert closed(obj()) == {**obj(), "additionalProperties": False}


@pytest.mark.parametrize(
    "keyword", [{"anyOf": [INNER, {"type": "null"}]}, {"prefixItems": [INNER]}, {"allOf": [INNER]}]
)
def test_wherever_they_stand(keyword: dict[str, list[Any]]) -> None:
    [(name, parts)] = keyword.items()
    assert closed(keyword) == {name: [SHUT, *parts[1:]]}


def test_in_definitions_too() -> None:
    schema = {"$defs": {"inner": INNER}, **obj(x={"$ref": "#/$defs/inner", "title": "X"})}
    assert closed(schema)["$defs"] == {"inner": SHUT}


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "object"},
        {"type": "object", "additionalProperties": {"type": "string"}},
        {**INNER, "additionalProperties": True},
        {**INNER, "patternProperties": {"^x": {}}},
        {**INNER, "anyOf": [{"required": ["b"]}]},
        {**INNER, "required": ["b"]},
        {**INNER, "minProperties": 2},
        {"allOf": [INNER, {"properties": {"b": {}}}]},
        {"oneOf": [INNER, {"properties": {"b": {}}}]},
        {"$defs": {"inner": INNER}, "$ref": "#/$defs/inner", "properties": {"b": {}}},
        {**obj(x=INNER), "allOf": [{"properties": {"x": {"required": ["b"]}}}]},
        {"items": INNER, "allOf": [{"items": {"required": ["b"]}}]},
        {**obj(x=INNER), "patternProperties": {"^x": {"required": ["b"]}}},
        {"patternProperties": {"^x": INNER, "x$": {"required": ["b"]}}},
        obj(x=INNER, y={"allOf": [{"$ref": "#/properties/x"}, {"required": ["b"]}]}),
        {"allOf": 1},
        {"properties": [], "required": 1},
        True,
        3,
    ],
)
def test_what_other_parts_may_say_more_of_is_left_open(schema: Any) -> None:
    assert closed(schema) == schema


class Cat(BaseModel):
    kind: Literal["cat"]
    lives: int


class Dog(BaseModel):
    kind: Literal["dog"]
    name: str


class Owner(BaseModel):
    pet: Annotated[Cat | Dog, Field(discriminator="kind")]
    more: dict[str, int]


def test_a_union_told_apart_is_shut() -> None:
    schema = Owner.model_json_schema()
    shut = closed(schema)
    assert not any(one.get("additionalProperties", True) for one in shut["$defs"].values())
    assert shut["properties"]["more"] == schema["properties"]["more"]
    valid = Draft202012Validator(shut).is_valid
    assert valid({"pet": {"kind": "cat", "lives": 9}, "more": {"a": 1}})
    assert not valid({"pet": {"kind": "cat", "lives": 9, "name": "x"}, "more": {}})


@pytest.mark.parametrize(
    "name", sorted(SCHEMAS.keys() - {"pydantic"})
)  # whose definitions are open
def test_what_is_shut_already_stays_as_it_is(name: str) -> None:
    assert closed(SCHEMAS[name]) == SCHEMAS[name]
