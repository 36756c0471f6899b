"""Somebody who asks now and then, beside somebody who asks for hundreds of answers at once.

``python -m tests.bench.fairness`` starts our server and prints a Markdown table: the first token of
either one's answers, where both are one user to the server and where they are two, in turns.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import statistics
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from configs.shipped import default_model
from tests.bench.client import Ask, Endpoint, over_http
from tests.bench.prompts import Prompts
from tests.bench.sse import Stream
from tests.serving import ROOT, serving

PROMPT, ANSWER = 64, 16  # tokens of the light one's requests
LONGEST = 128  # tokens of the heavy one's answers
TOGETHER = {"heavy": "all", "light": "all"}
APART = {"heavy": "heavy", "light": "light"}


@dataclass
class Course:
    """What came of both; ``seconds`` is how long all took."""

    seconds: float = 0.0
    heavy: list[Stream] = field(default_factory=list)
    light: list[Stream] = field(default_factory=list)


async def beside(asks: dict[str, Ask], source: Prompts, requests: int, every_s: float) -> Course:
    """The light one asks until the heavy one's requests are answered.

    Raises RuntimeError for an answer that is not whole.
    """
    chance, course, began = random.Random(requests), Course(), time.perf_counter()

    async def one(who: str, streams: list[Stream], tokens: int) -> None:
        streams.append(stream := Stream())
        await asks[who](source.text(PROMPT, chance.random()), tokens, stream)
        if stream.error or stream.tokens != tokens:
            raise RuntimeError(stream.error or f"{stream.tokens} tokens of {tokens}")

    async with asyncio.TaskGroup() as group:
        lengths = [chance.randint(1, LONGEST) for _ in range(requests)]
        many = [group.create_task(one("heavy", course.heavy, length)) for length in lengths]
        while pending := (await asyncio.wait(many, timeout=every_s))[1]:
            if len(pending) > requests // 10:  # else nobody waits any more
                group.create_task(one("light", course.light, ANSWER))
    course.seconds = time.perf_counter() - began
    return course


def asks(url: str, model: str, users: dict[str, str]) -> dict[str, Ask]:
    """How each of them asks, by the users that they name."""
    return {
        who: over_http(Endpoint(url, model, body={"user": name})) for who, name in users.items()
    }


def first_tokens(streams: Iterable[Stream]) -> list[float]:
    """How long each waited for its first text, in seconds."""
    return [stream.arrivals[0] - stream.sent for stream in streams]


def line(name: str, courses: Sequence[Course]) -> str:
    """Medians and the worst, in seconds, and all their tokens a second."""
    light = first_tokens(one for course in courses for one in course.light)
    heavy = first_tokens(one for course in courses for one in course.heavy)
    both = (one for course in courses for one in (*course.light, *course.heavy))
    rate = sum(one.tokens or 0 for one in both) / sum(course.seconds for course in courses)
    first = f"{statistics.median(light):.2f} | {max(light):.2f} | {statistics.median(heavy):.2f}"
    return f"| {name} | {len(light)} | {first} | {rate:.0f} |"


def measure(
    url: str, model: str, source: Prompts, requests: int, rounds: int, every_s: float = 0.5
) -> Iterator[str]:
    """The table's lines."""
    ways = {"one user": asks(url, model, TOGETHER), "two users": asks(url, model, APART)}
    courses: dict[str, list[Course]] = {name: [] for name in ways}
    order = list(ways)
    for _ in range(rounds):
        for name in order:
            courses[name].append(asyncio.run(beside(ways[name], source, requests, every_s)))
        order.reverse()
    yield "| both are | light requests | first token, s: median | worst | heavy's | tokens/s |"
    yield "|---|---|---|---|---|---|"
    for name, known in courses.items():
        yield line(name, known)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.fairness", description=__doc__)
    parser.add_argument("--requests", type=int, default=100, help="of the heavy one, at once")
    parser.add_argument("--rounds", type=int, default=2)
    arguments = parser.parse_args()
    model = default_model()
    source = Prompts.counted_by(model["source"])
    with serving(ROOT / "serve_config.yaml") as server:
        for one in measure(server.url, model["name"], source, arguments.requests, arguments.rounds):
            print(one, flush=True)


if __name__ == "__main__":
    main()
