"""What a JSON value must be, where no request model says it. Errors name the place."""

from __future__ import annotations

from typing import Any, TypeVar

from deployments.openai.errors import spell, wrong_type

Location = tuple[str | int, ...]  # a path into the body; see ``spell``
T = TypeVar("T")


def checked(kind: type[T], wanted: str, value: Any, at: Location | str) -> T:
    """The value, if it is of this kind, else raises ``ApiError``.

    ``wanted`` is what it should have been, in JSON's words; ``at`` its place, or how that is
    spelled.
    """
    if not isinstance(value, kind):
        raise wrong_type(wanted, value, at if isinstance(at, str) else spell(at))
    return value
