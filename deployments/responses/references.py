"""Items that an input only names, because an answer that was kept has them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from deployments.openai.checks import string_of
from deployments.openai.errors import ApiError, spell
from deployments.responses.items import Item
from deployments.responses.kept import Kept

# As a response names its own items: whose they are stands in their ids.
OWN = re.compile(r"[a-z]+_([0-9a-f]{32})\d*")


async def resolved(value: Any, history: Sequence[Item], kept: Kept) -> Any:
    """The input with the items themselves in place of references to them.

    They are looked for in ``history`` and in the answers that they are of. Raises ``ApiError``.
    """
    if not isinstance(value, list):
        return value
    known = {item["id"]: item for item in history}
    for i in reversed(range(len(value))):  # what a late answer is kept with has most of the others
        if is_reference(value[i]):
            await _learn(string_of(value[i], "id", ("input", i)), known, kept)
    return [_found(known, one, i) if is_reference(one) else one for i, one in enumerate(value)]


def is_reference(item: Any) -> bool:
    """Whether it names another; the type may be left out."""
    if not isinstance(item, Mapping):
        return False
    kind = item.get("type")
    return kind == "item_reference" or (kind is None and item.keys() - {"type"} == {"id"})


async def _learn(id: str, known: dict[str, Item], kept: Kept) -> None:
    own = OWN.fullmatch(id)
    if id in known or own is None:
        return
    record = await kept.find(f"resp_{own[1]}")
    if record is not None:
        known |= {item["id"]: item for item in record.conversation}


def _found(known: Mapping[str, Item], reference: Mapping[str, Any], i: int) -> Item:
    id: str = reference["id"]
    if id not in known:
        message = f"Item with id '{id}' not found. Items are only kept with responses that are."
        raise ApiError(404, message, param=spell(("input", i, "id")))
    return known[id]
