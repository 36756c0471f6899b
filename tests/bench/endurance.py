"""Long mixed load: does anything of the server grow, and is everything given back?

``python -m tests.bench.endurance --minutes 60`` starts our server, asks it for answers of all
lengths without a pause, breaks some of them off, and prints a Markdown table of its processes'
memory. It fails if an answer is not whole or does not end, or if KV blocks are still held when all
is over.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import statistics
import sys
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from urllib.request import urlopen

from prometheus_client.parser import text_string_to_metric_families

from configs.shipped import default_model
from tests.bench.client import Ask, over_http
from tests.bench.launch import Running, running
from tests.bench.processes import Kinds, command_line, kind_of, marked, resident_kib
from tests.bench.prompts import Prompts
from tests.bench.servers import SERVERS
from tests.bench.sse import Stream

LONGEST_PROMPT, LONGEST_ANSWER = 512, 256  # tokens
BROKEN_OFF = 0.2  # of all answers
PATIENCE_S = 2.0  # after which one of those is broken off at the latest
LATE_S = 300.0  # after which an answer is taken never to end
HELD = "stepserve_kv_blocks_used"

Memory = Mapping[str, float]  # MiB of all processes of a kind


@dataclass
class Load:
    """What clients have asked so far."""

    whole: int = 0
    broken_off: int = 0
    errors: list[str] = field(default_factory=list)


async def client(
    ask: Ask, source: Prompts, chance: random.Random, load: Load, late_s: float = LATE_S
) -> None:
    """Asks again and again until it is cancelled. Raises TimeoutError for what does not end."""
    while True:
        text = source.text(chance.randint(8, LONGEST_PROMPT), chance.random())
        tokens, stream = chance.randint(1, LONGEST_ANSWER), Stream()
        if chance.random() < BROKEN_OFF:
            with suppress(TimeoutError):
                async with asyncio.timeout(chance.uniform(0, PATIENCE_S)):
                    await ask(text, tokens, stream)
            load.broken_off += 1
            continue
        async with asyncio.timeout(late_s):
            await ask(text, tokens, stream)
        load.whole += 1
        if stream.error or stream.tokens != tokens:
            load.errors.append(stream.error or f"{stream.tokens} tokens of {tokens}")


def memory_of(pids: Sequence[int], kinds: Kinds) -> Memory:
    total: defaultdict[str, float] = defaultdict(float)
    for pid in pids:
        with suppress(OSError):  # it has ended
            total[kind_of(command_line(pid), kinds)] += resident_kib(pid) / 1024
    return dict(total)


async def endure(server: Running, clients: int, minutes: float, every_s: float) -> list[Memory]:
    """The memory at each ``every_s`` of so many minutes.

    Raises RuntimeError for a bad answer, and what a client raises.
    """
    load, source = Load(), Prompts.counted_by(default_model()["source"])
    ask = over_http(server.endpoint)
    tasks = [
        asyncio.create_task(client(ask, source, random.Random(i), load)) for i in range(clients)
    ]
    samples = []
    for _ in range(max(1, round(minutes * 60 / every_s))):
        ended, _ = await asyncio.wait(tasks, timeout=every_s, return_when=asyncio.FIRST_EXCEPTION)
        for task in ended:
            task.result()
        samples.append(memory_of(marked(server.mark), server.server.kinds))
        print(f"{load.whole} answers, {load.broken_off} broken off", file=sys.stderr, flush=True)
        if load.errors:
            raise RuntimeError(load.errors[0])
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)
    return samples


def blocks_held(url: str, patience_s: float = 10.0) -> float:
    """How many KV blocks running sequences hold, once none does or after so long.

    Raises RuntimeError if the metrics do not tell.
    """
    until = time.monotonic() + patience_s
    while True:
        with urlopen(f"{url}/metrics", timeout=patience_s) as answer:
            held = held_in(answer.read().decode())
        if not held or time.monotonic() > until:
            return held
        time.sleep(0.5)


def held_in(metrics: str) -> float:
    """By all replicas. Raises RuntimeError if the metrics do not tell."""
    families = text_string_to_metric_families(metrics)
    told = [one.value for family in families if family.name == HELD for one in family.samples]
    if not told:
        raise RuntimeError("the metrics tell of no KV blocks")
    return sum(told)


def table(samples: Sequence[Memory]) -> Iterator[str]:
    """Medians of each sixth of the time: the first holds what is made once."""
    parts = [samples[len(samples) * i // 6 : len(samples) * (i + 1) // 6] for i in range(6)]
    yield "| MiB, in each sixth of the time |" + " |" * 6
    yield "|---" * 7 + "|"
    for kind in sorted(samples[-1]):
        found = [[one[kind] for one in part if kind in one] for part in parts]
        row = [f"{statistics.median(values):.0f}" if values else "–" for values in found]
        yield f"| {kind} | {' | '.join(row)} |"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.endurance", description=__doc__)
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--clients", type=int, default=8)
    parser.add_argument("--every", type=float, default=30.0, help="seconds between two looks")
    parser.add_argument("--server", choices=("ours", "ours-int8"), default="ours")
    parser.add_argument("--out", type=Path, default=Path("build/bench"), help="folder of the log")
    wishes = parser.parse_args()
    with running(SERVERS[wishes.server], Path(), wishes.out) as server:
        samples = asyncio.run(endure(server, wishes.clients, wishes.minutes, wishes.every))
        held = blocks_held(server.endpoint.url)
    print("\n".join(table(samples)))
    if held:
        sys.exit(f"{held:.0f} KV blocks are still held")


if __name__ == "__main__":
    main()
