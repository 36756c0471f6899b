"""What Prometheus would read."""

from __future__ import annotations


def lines(text: str) -> dict[str, float]:
    """The value of each sample by its name and labels."""
    pairs = (line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#"))
    return {name: float(value) for name, value in pairs}
