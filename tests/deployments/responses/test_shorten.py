from __future__ import annotations

import pytest

from deployments.responses.items import Item, parse_input
from deployments.responses.shorten import without_oldest


def conversation(*turns: str) -> list[Item]:
    """Items by a letter each: s system, u user, a assistant, c a call, o its output."""
    said = {"s": "system", "u": "user", "a": "assistant"}
    items = []
    for i, turn in enumerate(turns):
        if turn in said:
            items.append({"role": said[turn], "content": f"{i}"})
        elif turn == "c":
            items.append({"type": "function_call", "call_id": "1", "name": "f", "arguments": "{}"})
        else:
            items.append({"type": "function_call_output", "call_id": "1", "output": f"{i}"})
    return parse_input(items)


@pytest.mark.parametrize(
    ("before", "share", "kept"),
    [
        ("uau", 0.1, "u"),
        ("uauau", 0.1, "uau"),
        ("suauau", 0.1, "suau"),
        ("uauau", 0.9, None),
        ("ucoau", 0.1, "u"),  # a result never stays without its call
        ("usau", 0.1, "su"),
        ("u", 0.1, None),
        ("uco", 0.1, None),
        ("uau", 0.0, "u"),
    ],
)
def test_what_goes(before: str, share: float, kept: str | None) -> None:
    items = conversation(*before)
    left = without_oldest(items, share)
    if kept is None:
        assert left is None
    else:
        assert left is not None
        assert left[-1] is items[-1]
        assert len(left) == len(kept)
        assert [item.get("role", "")[:1] for item in left] == list(kept)
