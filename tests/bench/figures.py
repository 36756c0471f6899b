"""From what happened to the figures of the table."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from tests.bench.scenarios import Course
from tests.bench.sse import Stream


@dataclass(frozen=True)
class Figures:
    """One run of one scenario. Times in ms; NaN-free: None where there is nothing to tell.

    Tokens are counted by the server's usage. ``gap_*`` are the times between two pieces of text of
    one stream; with long prompts only those after the first of them was sent. ``worst_gap_ms`` is
    the median over the running streams of each one's longest. ``cost_us`` is the CPU time a token
    of each kind of process, in microseconds.
    """

    tokens_per_s: float
    first_ms: float | None
    gap_ms: float | None
    gap_p99_ms: float | None
    tokens: int
    prompt_tokens: int
    seconds: float
    asked: int
    failed: int
    worst_gap_ms: float | None = None
    long_first_ms: float | None = None
    cost_us: Mapping[str, float] = field(default_factory=dict)
    error: str = ""


def figures(course: Course, cpu_s: Mapping[str, float]) -> Figures:
    """``cpu_s`` is the CPU time that each kind of process took meanwhile."""
    everyone = [*course.streams, *course.long_streams]
    tokens = sum(tokens_of(stream) for stream in everyone)
    gaps = [gaps_after(stream, course.interrupted) for stream in course.streams]
    every_gap = [gap for one in gaps for gap in one]
    seconds = course.ended - course.began
    errors = [stream.error for stream in everyone if stream.error]
    return Figures(
        tokens_per_s=tokens / seconds,
        first_ms=_ms(median(first_of(course.streams))),
        gap_ms=_ms(median(every_gap)),
        gap_p99_ms=_ms(percentile(every_gap, 99)),
        tokens=tokens,
        prompt_tokens=sum(stream.prompt_tokens or 0 for stream in everyone),
        seconds=seconds,
        asked=len(everyone),
        failed=len(errors),
        worst_gap_ms=_ms(median([max(one) for one in gaps if one])) if course.interrupted else None,
        long_first_ms=_ms(median(first_of(course.long_streams))),
        cost_us={kind: spent / tokens * 1e6 for kind, spent in cpu_s.items()} if tokens else {},
        error=errors[0] if errors else "",
    )


def tokens_of(stream: Stream) -> int:
    """By usage; by its pieces only where the server tells no usage."""
    return len(stream.arrivals) if stream.tokens is None else stream.tokens


def first_of(streams: Iterable[Stream]) -> list[float]:
    return [stream.arrivals[0] - stream.sent for stream in streams if stream.arrivals]


def gaps_after(stream: Stream, moment: float) -> list[float]:
    """Seconds between pieces of text, of those that came after ``moment``."""
    return [later - earlier for earlier, later in pairwise(stream.arrivals) if later > moment]


def median(values: Sequence[float]) -> float | None:
    return statistics.median(values) if values else None


def percentile(values: Sequence[float], percent: float) -> float | None:
    """By the nearest rank: the smallest value that so many per cent do not exceed."""
    if not values:
        return None
    rank = -(-len(values) * percent // 100)
    return sorted(values)[max(int(rank), 1) - 1]


def _ms(seconds: float | None) -> float | None:
    return None if seconds is None else seconds * 1000
