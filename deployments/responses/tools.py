"""Function tools and the choice among them, in the words of Responses."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from deployments.openai.checks import require_array, require_object
from deployments.openai.errors import ApiError, invalid
from deployments.openai.tools import Offer, check_other_fields, parse_offer

FUNCTION = ("name", "description", "parameters", "strict")
SPELLED = ((".allowed_tools", ""), (".function", ""))  # neither is around the fields here


def parse_tools(tools: Any, choice: Any, parallel: bool | None) -> Offer:
    """Raises ``ApiError``."""
    listed = [] if tools is None else require_array(tools, "tools")
    given = [_tool(tool, f"tools[{i}]") for i, tool in enumerate(listed)]
    try:
        return parse_offer(given, _choice(choice), parallel)
    except ApiError as error:
        raise error.respelled(*SPELLED) from None


def _tool(tool: Any, at: str) -> dict[str, Any]:
    require_object(tool, at)
    if tool.get("type") != "function":
        message = f"Tools of this type are not supported: '{at}.type'. Only 'function' ones are."
        raise invalid(message, f"{at}.type", "unsupported_value")
    check_other_fields(tool, ("type", *FUNCTION), at)
    nested: dict[str, Any] = _nested(tool, FUNCTION)
    return nested


def _choice(choice: Any) -> Any:
    if not isinstance(choice, dict):
        return choice
    if choice.get("type") == "allowed_tools":
        tools = choice.get("tools")
        nested = [_nested(one, ("name",)) for one in tools] if isinstance(tools, list) else tools
        return {"type": "allowed_tools", "allowed_tools": {**choice, "tools": nested}}
    return _nested(choice, ("name",))


def _nested(value: Any, keys: tuple[str, ...]) -> Any:
    """As a chat has it: the function's fields are in an object of their own."""
    if not isinstance(value, Mapping):
        return value
    function = {key: value[key] for key in keys if key in value}
    return {"type": value.get("type"), "function": function}
