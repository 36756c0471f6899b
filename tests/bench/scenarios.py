"""What clients do, A to E, and doing it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tests.bench.client import Ask
from tests.bench.prompts import Prompts
from tests.bench.sse import Stream

POLL_S = 0.02


@dataclass(frozen=True)
class Scenario:
    """``clients`` ask ``requests`` times in all, each again as soon as it has been answered.

    ``shared`` tokens at the beginning of all prompts are the same. Once all clients' first answers
    have begun, ``long_prompts`` more arrive, ``apart_s`` after each other.
    """

    name: str
    about: str
    clients: int
    requests: int
    prompt_tokens: int = 128
    answer_tokens: int = 128
    shared: int = 0
    long_prompts: int = 0
    long_tokens: int = 1000
    long_answer_tokens: int = 32
    apart_s: float = 1.0

    def prompts(self, source: Prompts, *seed: object) -> Iterator[str]:
        """Those of the clients: no two have more than their shared beginning in common."""
        seed = (self.name, *seed)
        prefix = source.text(self.shared, *seed) if self.shared else ""
        for index in range(self.requests):
            yield source.text(self.prompt_tokens, *seed, index, prefix=prefix)

    def interruptions(self, source: Prompts, *seed: object) -> Iterator[str]:
        for index in range(self.long_prompts):
            yield source.text(self.long_tokens, self.name, *seed, "long", index)


SCENARIOS = {
    scenario.name: scenario
    for scenario in (
        Scenario("A", "1 client, 128 tokens in, 128 out", 1, 4),
        Scenario("B", "8 clients, 16 requests", 8, 16),
        Scenario("C", "32 clients, 64 requests", 32, 64),
        Scenario(
            "D",
            "4 clients, 24 requests, 512 shared tokens in, 32 of their own, 32 out",
            4,
            24,
            prompt_tokens=544,
            answer_tokens=32,
            shared=512,
        ),
        Scenario(
            "E",
            "8 streams of 256 tokens, while four prompts of 1,000 arrive, a second apart",
            8,
            8,
            answer_tokens=256,
            long_prompts=4,
        ),
    )
}


@dataclass(frozen=True)
class Course:
    """All that happened; ``interrupted`` is when the first long prompt was sent, 0 without one."""

    streams: Sequence[Stream]
    long_streams: Sequence[Stream]
    began: float
    ended: float
    interrupted: float = 0.0


async def run(scenario: Scenario, ask: Ask, source: Prompts, *seed: object) -> Course:
    """Asks as the scenario says. The texts are made before the clock starts."""
    texts = list(scenario.prompts(source, *seed))
    long_texts = list(scenario.interruptions(source, *seed))
    streams = [Stream() for _ in texts]
    long_streams = [Stream() for _ in long_texts]
    waiting = iter(list(zip(texts, streams, strict=True)))
    began = time.perf_counter()

    async def client() -> None:
        for text, stream in waiting:
            await ask(text, scenario.answer_tokens, stream)

    async def interrupt() -> None:
        await _all_begun(streams[: scenario.clients])
        async with asyncio.TaskGroup() as group:
            for number, (text, stream) in enumerate(zip(long_texts, long_streams, strict=True)):
                await asyncio.sleep(scenario.apart_s if number else 0)
                group.create_task(_asked(ask, text, scenario.long_answer_tokens, stream))

    async with asyncio.TaskGroup() as group:
        for _ in range(scenario.clients):
            group.create_task(client())
        if long_texts:
            group.create_task(interrupt())
    interrupted = long_streams[0].sent if long_streams else 0.0
    return Course(streams, long_streams, began, time.perf_counter(), interrupted)


async def warm_up(ask: Ask, source: Prompts, *seed: object) -> Stream:
    """The first requests of all are not counted. The stream of one, for what went wrong."""
    streams = [Stream() for _ in range(4)]
    await asyncio.gather(
        *(
            ask(source.text(128, "warm", *seed, index), 16, stream)
            for index, stream in enumerate(streams)
        )
    )
    return streams[0]


async def _asked(ask: Ask, text: str, tokens: int, stream: Stream) -> None:
    await ask(text, tokens, stream)


async def _all_begun(streams: Sequence[Stream]) -> None:
    while not all(stream.arrivals or stream.over for stream in streams):  # noqa: ASYNC110
        await asyncio.sleep(POLL_S)
