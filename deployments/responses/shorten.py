"""Which items of a conversation go when it is too long for its model."""

from __future__ import annotations

import json
from collections.abc import Sequence

from deployments.responses.items import Item


def without_oldest(items: Sequence[Item], share: float) -> list[Item] | None:
    """Without the oldest items, about this share of all by size and at least one.

    Instructions stay. So that what is left makes sense, it begins with a message of the user. None
    if the last message, or what it answers, would have to go.
    """
    sizes = [0 if _instructs(item) else len(json.dumps(item)) for item in items]
    least, gone = max(share, 0) * sum(sizes), 0
    begins = False
    for i, item in enumerate(items):
        begins = begins or (gone > 0 and gone >= least)
        if begins and item.get("role") == "user":
            return [*filter(_instructs, items[:i]), *items[i:]]
        gone += sizes[i]
    return None


def _instructs(item: Item) -> bool:
    return item.get("role") in ("system", "developer")
