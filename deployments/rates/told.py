"""What the headers of an answer tell of its key's limits, in two dialects."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime

from deployments.rates.use import Use

WHAT = ("limit", "remaining", "reset")
# For web pages, which see only what they are shown.
EXPOSED = tuple(
    name
    for kind in ("requests", "tokens")
    for what in WHAT
    for name in (f"x-ratelimit-{what}-{kind}", f"anthropic-ratelimit-{kind}-{what}")
)


def headers(uses: Mapping[str, Use], *, anthropic: bool, now: float) -> Iterator[tuple[str, str]]:
    """Of each kind its limit, what is left of it, and when all of it is; ``now`` since 1970."""
    for kind, use in uses.items():
        if anthropic:
            told = (str(use.limit), str(use.remaining), _moment(now + use.reset_s()))
            names = (f"anthropic-ratelimit-{kind}-{what}" for what in WHAT)
        else:
            told = (str(use.limit), str(use.remaining), _duration(use.reset_s()))
            names = (f"x-ratelimit-{what}-{kind}" for what in WHAT)
        yield from zip(names, told, strict=True)


def _moment(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")


def _duration(seconds: float) -> str:
    """As ``1m30.5s``, ``12s`` or ``0s``."""
    minutes, rest = divmod(round(seconds, 3), 60)
    return f"{int(minutes)}m{rest:g}s" if minutes else f"{rest:g}s"
