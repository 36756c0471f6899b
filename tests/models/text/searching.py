"""Stops found by plain search, and texts cut into pieces."""

from __future__ import annotations

from itertools import pairwise


def first_match(text: str, stops: list[str]) -> tuple[int, str] | None:
    """The leftmost match, the shortest of those that start there: by plain search."""
    found = [(text.find(stop), len(stop), stop) for stop in stops if stop and stop in text]
    return (min(found)[0], min(found)[2]) if found else None


def unsettled(text: str, stops: list[str]) -> str:
    """The longest end of ``text`` that is a proper prefix of some stop: by plain search."""
    ends = (text[i:] for i in range(len(text)))
    return next((e for e in ends if any(s.startswith(e) and s != e for s in stops)), "")


def cut(text: str, cuts: list[int]) -> list[str]:
    places = [0, *sorted(min(place, len(text)) for place in cuts), len(text)]
    return [text[a:b] for a, b in pairwise(places)]
