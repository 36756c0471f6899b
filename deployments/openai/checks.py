"""What a JSON value must be, where no request model says it. Errors name the place."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

from deployments.openai.errors import spell, wrong_type

Location = tuple[str | int, ...]  # a path into the body; see ``spell``
T = TypeVar("T")


def require_object(value: Any, at: Location | str) -> dict[str, Any]:
    """The value; raises ``ApiError`` about its place, ``at`` or spelled so, if it is no object."""
    return _checked(dict, "an object", value, at)


def require_array(value: Any, at: Location | str, wanted: str = "an array") -> list[Any]:
    """Likewise; ``wanted`` is what it should have been, in JSON's words."""
    return _checked(list, wanted, value, at)


def require_string(value: Any, at: Location | str) -> str:
    """Likewise; it may be empty."""
    return _checked(str, "a string", value, at)


def string_of(fields: Mapping[str, Any], key: str, at: Location) -> str:
    """The one that is a field of an object, whose place is ``at``."""
    return require_string(fields.get(key), (*at, key))


def _checked(kind: type[T], wanted: str, value: Any, at: Location | str) -> T:
    if not isinstance(value, kind):
        raise wrong_type(wanted, value, at if isinstance(at, str) else spell(at))
    return value
