"""The messages of a chat: checked, their text parts joined, as plain values for the template."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from deployments.openai.checks import (
    Location,
    require_array,
    require_object,
    require_string,
    string_of,
)
from deployments.openai.errors import invalid, missing, not_one_of, spell, unknown, wrong_type

# The fields of each role that templates use, besides role and content.
FIELDS: Mapping[str, frozenset[str]] = {
    "system": frozenset({"name"}),
    "developer": frozenset({"name"}),
    "user": frozenset({"name"}),
    "assistant": frozenset(
        {"name", "tool_calls", "function_call", "reasoning", "reasoning_content"}
    ),
    "tool": frozenset({"name", "tool_call_id"}),
    "function": frozenset({"name"}),
}
REQUIRED = {"tool": "tool_call_id", "function": "name"}
# What LiteLLM, OpenRouter and their clients put beside a message, in words of their own.
NOTES = {"cache_control", "provider_specific_fields", "reasoning_details", "thinking_blocks"}
# Taken elsewhere, or sent back by clients with an answer and without meaning to a template.
PASSED_OVER = frozenset({"role", "content", "annotations", "refusal", *NOTES})
# What an assistant may have said instead of content.
INSTEAD = ("tool_calls", "function_call", "reasoning", "reasoning_content")


def parse_messages(values: Sequence[Any]) -> tuple[Mapping[str, Any], ...]:
    """Raises ``ApiError`` naming the field, such as ``messages[1].role``."""
    return tuple(_message(value, ("messages", i)) for i, value in enumerate(values))


def _message(value: Any, at: Location) -> dict[str, Any]:
    require_object(value, at)
    role = _role(value.get("role"), (*at, "role"))
    fields = _fields(role, value, at)
    return {"role": role, "content": _content(role, value, at), **fields}


def _role(value: Any, at: Location) -> str:
    role = require_string(value, at)
    if role not in FIELDS:
        raise not_one_of(spell(at), FIELDS)
    return role


def _fields(role: str, value: Mapping[str, Any], at: Location) -> dict[str, Any]:
    given = ((key, field) for key, field in value.items() if field is not None)
    extra = {key: field for key, field in given if key not in PASSED_OVER}
    for key, field in extra.items():
        if key not in FIELDS[role]:
            raise unknown(spell((*at, key)))
        _check_field(key, field, (*at, key))
    if role in REQUIRED and REQUIRED[role] not in extra:
        raise missing(spell((*at, REQUIRED[role])))
    return extra


def _check_field(key: str, field: Any, at: Location) -> None:
    if key == "tool_calls":
        _check_tool_calls(field, at)
    elif key == "function_call":
        _check_function(field, at)
    else:
        require_string(field, at)


def _check_tool_calls(calls: Any, at: Location) -> None:
    for i, call in enumerate(require_array(calls, at)):
        require_object(call, (*at, i))
        _check_function(call.get("function"), (*at, i, "function"))
        string_of(call, "id", (*at, i))
        if call.get("type", "function") != "function":
            message = (
                f"Invalid value for '{spell((*at, i, 'type'))}': only 'function' is supported."
            )
            raise invalid(message, spell((*at, i, "type")), "unsupported_value")


def _check_function(function: Any, at: Location) -> None:
    require_object(function, at)
    for key in ("name", "arguments"):
        string_of(function, key, at)


def _content(role: str, message: Mapping[str, Any], at: Location) -> str:
    content = message.get("content")
    here = (*at, "content")
    if isinstance(content, str):
        return content
    if isinstance(content, list) and content:
        return "\n".join(_part(role, part, (*here, i)) for i, part in enumerate(content))
    if content is None and _may_be_null(role, message):
        return ""
    raise wrong_type("a string or a non-empty array of text parts", content, spell(here))


def _may_be_null(role: str, message: Mapping[str, Any]) -> bool:
    return role == "function" or (
        role == "assistant" and any(message.get(other) for other in INSTEAD)
    )


def _part(role: str, part: Any, at: Location) -> str:
    require_object(part, at)
    field = _part_type(role, part.get("type"), (*at, "type"))
    return string_of(part, field, at)


def _part_type(role: str, value: Any, at: Location) -> str:
    name = require_string(value, at)
    if name == "text" or (name == "refusal" and role == "assistant"):
        return name
    message = f"Content parts of type '{name}' are not supported: this server takes text only."
    raise invalid(message, spell(at), "unsupported_value")
