"""The tools of a chat, and which of them the answer may or must call: checked, plain values."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from deployments.openai.checks import Location, require_array, require_object, require_string
from deployments.openai.errors import invalid, missing, not_one_of, spell, wrong_type
from deployments.openai.parameters import unsupported
from models.request import ToolChoice

Tools = tuple[Mapping[str, Any], ...]

MAX_TOOLS = 1024
NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
MODES = ("none", "auto", "required")
# Of fields that functions have elsewhere, the values that ask for what is done anyway.
DONE_ANYWAY: tuple[Any, ...] = (None, False, [], ["direct"])


@dataclass(frozen=True, slots=True)
class Offer:
    """What the answer may call, and whether it must."""

    tools: Tools = ()
    choice: ToolChoice = field(default_factory=ToolChoice)


def parse_offer(tools: Any, choice: Any, parallel: bool | None) -> Offer:
    """From ``tools``, ``tool_choice`` and ``parallel_tool_calls``. Raises ``ApiError``.

    With the choice ``none`` nothing is offered.
    """
    parsed = _tools(tools)
    mode, name, allowed = _choice(choice, names_of(parsed))
    if mode == "none":
        return Offer()
    if mode == "required" and not parsed:
        raise invalid("'tool_choice' is only allowed when 'tools' are given.", "tool_choice")
    offered = parsed if allowed is None else tuple(t for t in parsed if _name(t) in allowed)
    one_mode: Literal["auto", "required"] = "required" if mode == "required" else "auto"
    return Offer(offered, ToolChoice(one_mode, name, parallel is not False))


def check_other_fields(tool: Mapping[str, Any], known: Collection[str], at: str) -> None:
    """Raises ``ApiError`` for a field beside the known ones that asks for more."""
    for key in tool.keys() - set(known):
        if tool[key] not in DONE_ANYWAY:
            raise unsupported(f"{at}.{key}")


def names_of(tools: Iterable[Mapping[str, Any]]) -> list[str]:
    """The names of their functions."""
    return [_name(tool) for tool in tools]


def _name(tool: Mapping[str, Any]) -> str:
    name: str = tool["function"]["name"]
    return name


def _tools(values: Any) -> Tools:
    if values is None:
        return ()
    require_array(values, "tools")
    if len(values) > MAX_TOOLS:
        raise invalid(f"At most {MAX_TOOLS} tools are allowed.", "tools", "array_above_max_length")
    seen: set[str] = set()
    for i, value in enumerate(values):
        _check_tool(value, ("tools", i), seen)
    return tuple(values)


def _check_tool(tool: Any, at: Location, seen: set[str]) -> None:
    _object(tool, at)
    _check_type(tool, at)
    where = (*at, "function")
    function = _object(tool.get("function"), where)
    _check_name(function.get("name"), (*where, "name"), seen)
    _check_kind(function, "description", str, "a string", where)
    _check_kind(function, "strict", bool, "a boolean", where)
    if function.get("parameters") is not None:
        _check_parameters(function["parameters"], (*where, "parameters"))


def _check_type(tool: Mapping[str, Any], at: Location) -> None:
    kind = _string(tool.get("type"), (*at, "type"))
    if kind != "function":
        message = f"Tools of type '{kind}' are not supported: this server calls functions only."
        raise invalid(message, spell((*at, "type")), "unsupported_value")


def _check_name(name: Any, at: Location, seen: set[str]) -> None:
    if NAME.fullmatch(_string(name, at)) is None:
        message = f"Invalid '{spell(at)}': '{name[:80]}' does not match '{NAME.pattern}'."
        raise invalid(message, spell(at), "invalid_value")
    if name in seen:
        message = f"Invalid '{spell(at)}': there are several functions named '{name}'."
        raise invalid(message, spell(at), "invalid_value")
    seen.add(name)


def _check_parameters(schema: Any, at: Location) -> None:
    """What must hold of any JSON schema of an object; the rest shows when it is enforced."""
    _object(schema, at)
    if schema.get("type", "object") != "object":
        message = f"Invalid schema for '{spell(at)}': its type must be 'object'."
        raise invalid(message, spell(at), "invalid_function_parameters")
    _check_kind(schema, "properties", dict, "an object", at)
    _check_kind(schema, "required", list, "an array", at)
    for key, value in (schema.get("properties") or {}).items():
        if not isinstance(value, dict | bool):
            raise wrong_type("a JSON schema", value, spell((*at, "properties", key)))
    for i, key in enumerate(schema.get("required") or ()):
        _string(key, (*at, "required", i))


def _choice(value: Any, names: Sequence[str]) -> tuple[str, str | None, set[str] | None]:
    """The mode, the one function that must be called, and those that may be if not all."""
    at = ("tool_choice",)
    if value is None or isinstance(value, str):
        return _mode(value or "auto", MODES, at), None, None
    kind = _string(_object(value, at).get("type"), (*at, "type"))
    if kind == "function":
        return "required", _known_function(value, names, at), None
    if kind == "allowed_tools":
        where = (*at, "allowed_tools")
        return _allowed(_object(value.get("allowed_tools"), where), names, where)
    message = f"Invalid value for 'tool_choice.type': '{kind}'."
    raise invalid(message, "tool_choice.type", "invalid_value")


def _allowed(
    value: Mapping[str, Any], names: Sequence[str], at: Location
) -> tuple[str, str | None, set[str] | None]:
    mode = _mode(_string(value.get("mode"), (*at, "mode")), MODES[1:], (*at, "mode"))
    tools = value.get("tools")
    if not isinstance(tools, list) or not tools:
        raise wrong_type("a non-empty array", tools, spell((*at, "tools")))
    allowed = {_known_function(tool, names, (*at, "tools", i)) for i, tool in enumerate(tools)}
    return mode, None, allowed


def _known_function(value: Any, names: Sequence[str], at: Location) -> str:
    where = (*at, "function", "name")
    function = _object(_object(value, at).get("function"), where[:-1])
    name = _string(function.get("name"), where)
    if name not in names:
        message = f"Invalid value for '{spell(where)}': no tool is named '{name[:80]}'."
        raise invalid(message, spell(where), "invalid_value")
    return name


def _mode(value: str, modes: Sequence[str], at: Location) -> str:
    if value not in modes:
        raise not_one_of(spell(at), modes)
    return value


def _object(value: Any, at: Location) -> Mapping[str, Any]:
    if value is None:
        raise missing(spell(at))
    return require_object(value, at)


def _string(value: Any, at: Location) -> str:
    if value is None:
        raise missing(spell(at))
    return require_string(value, at)


def _check_kind(value: Mapping[str, Any], key: str, kind: type, wanted: str, at: Location) -> None:
    if not isinstance(value.get(key), kind | None):
        raise wrong_type(wanted, value[key], spell((*at, key)))
