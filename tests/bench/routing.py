"""What prompts that begin alike gain where they go to the same one of two replicas.

``python -m tests.bench.routing`` prints a Markdown table: Serve's own router and ours, in turns.
Two servers of the default model stand beside each other, each with two replicas of one thread; the
one that is not asked is stopped meanwhile.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import uvloop
import yaml

from configs.shipped import default_model
from deployments.app import ROUTER
from tests.bench.client import over_http
from tests.bench.figures import figures
from tests.bench.launch import Running, running
from tests.bench.processes import standing_still
from tests.bench.prompts import Prompts
from tests.bench.scenarios import Course, warm_up
from tests.bench.servers import OURS, Place, Server
from tests.bench.sse import Stream
from tests.serving import HOST, ROOT

NAME = str(default_model()["name"])
# Five thousand tokens a replica: what 4 prefixes of 512 take twice, and half of what 16 do.
ENGINE = {"threads": 1, "kv_cache_dtype": "bfloat16", "kv_cache_gib": 0.11}
SIDES: Mapping[str, dict[str, Any]] = {"Serve's": {"request_router_config": ROUTER}, "ours": {}}
PREFIX, ANSWER = 512, 32  # tokens
Conversation = Sequence[str]  # its prompts, each answered before the next is asked


@dataclass(frozen=True)
class Load:
    """``requests`` in all by ``clients``; each shares a prefix with those of its group.

    A request of a conversation of several ``turns`` begins with the one before it.
    """

    about: str
    groups: int
    requests: int
    turns: int = 1
    own: int = 32  # tokens of each turn
    pause_s: float = 0.0  # between turns, twice that at most
    clients: int = 8

    def conversations(self, source: Prompts, *seed: object) -> list[Conversation]:
        dice = random.Random(repr(seed))
        prefixes = [source.text(PREFIX, *seed, group) for group in range(self.groups)]
        return [
            self._conversation(source, dice.choice(prefixes), *seed, number)
            for number in range(self.requests // self.turns)
        ]

    def _conversation(self, source: Prompts, text: str, *seed: object) -> Conversation:
        prompts = []
        for turn in range(1, self.turns + 1):
            text = source.text(PREFIX + turn * self.own, *seed, turn, prefix=text)
            prompts.append(text)
        return prompts


LOADS = [
    Load("1 prefix", 1, 32),
    Load("4 prefixes", 4, 48),
    Load("16 prefixes", 16, 96),
    Load("1 prefix, 12 conversations", 1, 48, turns=4, own=128, pause_s=0.5),
]


@dataclass
class Seen:
    """Of each round: how much of the prompts was cached, the first token, tokens a second."""

    hits: list[float] = field(default_factory=list)
    first_ms: list[float] = field(default_factory=list)
    tokens_per_s: list[float] = field(default_factory=list)

    def add(self, course: Course) -> None:
        found = figures(course, {})
        assert not found.failed, found.error
        assert found.first_ms is not None
        cached = sum(stream.cached_tokens or 0 for stream in course.streams)
        self.hits.append(cached / found.prompt_tokens)
        self.first_ms.append(found.first_ms)
        self.tokens_per_s.append(found.tokens_per_s)


def server(side: str) -> Server:
    """``serve_config.yaml`` with two replicas of the model, and the router of this side."""

    def command(place: Place) -> list[str]:
        config = yaml.safe_load((ROOT / "serve_config.yaml").read_text())
        (application,) = config["applications"]
        application["args"]["models"][0]["engine"] |= ENGINE
        deployments = {one["name"]: one for one in application["deployments"]}
        deployments[f"Model-{NAME}"] |= {"num_replicas": 2, **SIDES[side]}
        for deployment in deployments.values():
            deployment["ray_actor_options"]["num_cpus"] = 0.1
        path = place.scratch / "serve_config.yaml"
        path.write_text(yaml.safe_dump(config))
        serve = [sys.executable, "-m", "deployments.serve_command", "--config", str(path)]
        return [*serve, "--host", HOST, "--port", str(place.port)]

    return Server(side, side, "", command, engine=ENGINE, model=NAME, health="/ready", kinds=OURS)


async def ask_all(asked: Running, load: Load, conversations: Sequence[Conversation]) -> Course:
    ask = over_http(asked.endpoint)
    streams: list[Stream] = []
    dice = random.Random(load.about)
    waiting = iter(conversations)
    began = time.perf_counter()

    async def client() -> None:
        for prompts in waiting:
            for prompt in prompts:
                streams.append(Stream())
                await ask(prompt, ANSWER, streams[-1])
                await asyncio.sleep(dice.random() * 2 * load.pause_s)

    async with asyncio.TaskGroup() as group:
        for _ in range(load.clients):
            group.create_task(client())
    return Course(streams, [], began, time.perf_counter())


HEADER = """\
| prompts | cached: Serve's, ours | first token, ms: Serve's, ours | ratio | tokens/s: Serve's, ours | ratio |
|---|---|---|---|---|---|"""  # noqa: E501


def row(load: Load, seen: Mapping[str, Seen]) -> str:
    """Medians of all rounds."""
    sides = [seen[side] for side in SIDES]
    hits = ", ".join(f"{statistics.median(one.hits):.0%}" for one in sides)
    first, first_ratio = _compared([one.first_ms for one in sides])
    pace, pace_ratio = _compared([one.tokens_per_s for one in sides])
    return f"| {load.about} | {hits} | {first} | {first_ratio} | {pace} | {pace_ratio} |"


def _compared(sides: Sequence[Sequence[float]]) -> tuple[str, str]:
    theirs, ours = map(statistics.median, sides)
    return f"{theirs:.0f}, {ours:.0f}", f"{ours / theirs:.2f}"


def compare(
    servers: Mapping[str, Running], load: Load, source: Prompts, seeds: Sequence[str]
) -> Mapping[str, Seen]:
    """Each side is asked the same, with one seed after the other."""
    seen = {side: Seen() for side in servers}
    for seed in seeds:
        conversations = load.conversations(source, load.about, seed)
        for side, asked in servers.items():
            with alone(asked, servers.values()):
                seen[side].add(uvloop.run(ask_all(asked, load, conversations)))
    return seen


@contextmanager
def alone(asked: Running, servers: Iterable[Running]) -> Iterator[None]:
    with ExitStack() as stack:
        for server in servers:
            if server is not asked:
                stack.enter_context(standing_still(server.mark))
        yield


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--seed", default="1")
    arguments = parser.parse_args()
    source = Prompts.counted_by(str(default_model()["source"]))
    seeds = [f"{arguments.seed}, {number}" for number in range(arguments.rounds)]
    with ExitStack() as stack:
        logs = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        servers = {side: stack.enter_context(running(server(side), logs, logs)) for side in SIDES}
        for asked in servers.values():
            uvloop.run(warm_up(over_http(asked.endpoint), source))
        print(HEADER)
        for load in LOADS:
            print(row(load, compare(servers, load, source, seeds)), flush=True)


if __name__ == "__main__":
    main()
