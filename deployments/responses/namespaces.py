"""Functions in namespaces, which models know by one name: ``crm__find`` is ``find`` of ``crm``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from deployments.openai.checks import require_array, require_object, require_string
from deployments.openai.tools import check_other_fields

Tool = Mapping[str, Any]
NAMESPACE = ("type", "name", "description", "tools")


def joined_name(namespace: str | None, name: str) -> str:
    """What the model calls it."""
    return name if namespace is None else f"{namespace}__{name}"


def split_names(tools: Sequence[Any] | None) -> dict[str, tuple[str, str]]:
    """Namespace and name of all functions in one, by what the model calls them."""
    return {
        joined_name(space["name"], tool["name"]): (space["name"], tool["name"])
        for space in tools or ()
        if is_namespace(space)
        for tool in space["tools"]
    }


def is_namespace(tool: Any) -> bool:
    """Whether it holds other tools."""
    return isinstance(tool, Mapping) and tool.get("type") == "namespace"


def flattened(tools: Sequence[Any]) -> Iterator[tuple[Any, str]]:
    """All tools and their places, those of a namespace by the model's names.

    What a namespace is for is told with its first function. Raises ``ApiError``.
    """
    for i, tool in enumerate(tools):
        if is_namespace(tool):
            yield from _of(tool, f"tools[{i}]")
        else:
            yield tool, f"tools[{i}]"


def _of(space: Tool, at: str) -> Iterator[tuple[Any, str]]:
    check_other_fields(space, NAMESPACE, at)
    name = require_string(space.get("name"), f"{at}.name")
    about = require_string(space.get("description") or "", f"{at}.description")
    inner = require_array(space.get("tools"), f"{at}.tools")
    for i, tool in enumerate(inner):
        place = f"{at}.tools[{i}]"
        require_object(tool, place)
        own = require_string(tool.get("name"), f"{place}.name")
        said = tool.get("description")
        if i == 0 and about and isinstance(said, str | None):
            said = f"{about}\n{said}" if said else about
        yield {**tool, "name": joined_name(name, own), "description": said}, place
