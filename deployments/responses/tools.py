"""Function tools and the choice among them, in the words of Responses."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from deployments.openai.checks import require_array, require_object
from deployments.openai.errors import ApiError, invalid
from deployments.openai.tools import Offer, check_other_fields, parse_offer
from deployments.responses.namespaces import flattened

FUNCTION = ("name", "description", "parameters", "strict")
SPELLED = ((".allowed_tools", ""), (".function", ""))  # neither is around the fields here


def parse_tools(tools: Any, choice: Any, parallel: bool | None) -> Offer:
    """Raises ``ApiError``."""
    listed = [] if tools is None else require_array(tools, "tools")
    placed = list(flattened(listed))
    given = [_tool(tool, at) for tool, at in placed]
    try:
        return parse_offer(given, _choice(choice), parallel)
    except ApiError as error:
        raise error.respelled(*_places(error, [at for _, at in placed]), *SPELLED) from None


def _places(error: ApiError, places: Sequence[str]) -> list[tuple[str, str]]:
    """How the tool that is blamed is spelled where it was counted, and where it stands."""
    blamed = re.match(r"tools\[(\d+)\]", error.param or "")
    return [] if blamed is None else [(blamed[0], places[int(blamed[1])])]


def _tool(tool: Any, at: str) -> dict[str, Any]:
    require_object(tool, at)
    if tool.get("type") != "function":
        message = f"Tools of type '{tool.get('type')}' are not supported: '{at}.type'. "
        message += "Only 'function' and 'namespace' ones are."
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
