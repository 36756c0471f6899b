"""Many open streams at once: do all come at their pace, and does memory stay as it is?

``python -m tests.bench.open_streams`` starts a server with the scripted model and prints a Markdown
table of its processes. It fails if a stream breaks off or is not whole.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import uvloop
import yaml

from tests.bench.client import Endpoint, over_http
from tests.bench.processes import command_line, cpu_s, lives, resident_kib
from tests.bench.sse import Stream
from tests.serving import ROOT, Server, serving

PRESET = ROOT / "configs" / "presets" / "mock.yaml"
MIB = 1024
PASSED = ("haproxy", "ray::ProxyActor", "ray::ServeReplica")


@contextmanager
def mock_config(every_s: float) -> Iterator[Path]:
    """The preset of the scripted model at this pace, without limits that streams could reach."""
    config: dict[str, Any] = yaml.safe_load(PRESET.read_text())
    (application,) = config["applications"]
    application["args"]["models"][0]["factory_args"] |= {"inter_token_s": every_s}
    for deployment in application["deployments"]:
        deployment |= {"max_ongoing_requests": 100_000, "max_queued_requests": -1}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "mock.yaml"
        path.write_text(yaml.safe_dump(config))
        yield path


async def ask_all(url: str, streams: int, tokens: int, limit_s: float) -> list[Stream]:
    """All at once, each for so many tokens; every answer must be whole, and there in time."""
    ask = over_http(Endpoint(url, "mock"))
    results = [Stream() for _ in range(streams)]
    async with asyncio.timeout(limit_s):
        await asyncio.gather(*(ask(f"{i}", tokens, one) for i, one in enumerate(results)))
    for one in results:
        assert not one.error, one.error
        assert one.tokens == tokens, one.tokens
    return results


def title(pid: int) -> str:
    """What Ray calls it, or the name of its program."""
    return Path(command_line(pid).partition(" ")[0]).name


def replicas(server: Server) -> Mapping[int, str]:
    """The processes that streams pass, by their titles."""
    named = {pid: title(pid) for pid in server.processes()}
    return {pid: name for pid, name in named.items() if name.startswith(PASSED)}


def measure(
    server: Server, streams: int, tokens: int, rounds: int, limit_s: float = 300.0
) -> Iterator[str]:
    """The table's lines. Raises TimeoutError if a round takes longer than ``limit_s``."""
    uvloop.run(
        ask_all(server.url, streams, 10, limit_s)
    )  # all that is made once for so many streams
    names = replicas(server)
    memory = [{pid: resident_kib(pid) for pid in names}]
    cpu = {pid: cpu_s(pid) for pid in names}
    began = time.perf_counter()
    for _ in range(rounds):
        results = uvloop.run(ask_all(server.url, streams, tokens, limit_s))
        memory.append({pid: resident_kib(pid) for pid in names if lives(pid)})
    took = time.perf_counter() - began
    count = rounds * streams * tokens
    paces = [(tokens - 1) / (one.arrivals[-1] - one.arrivals[0]) for one in results]
    yield f"{streams} streams, {rounds} times {tokens} tokens each: {count / took:.0f} tokens/s;"
    yield f"the slowest of the last came at {min(paces):.1f} tokens/s, the median at"
    yield f"{statistics.median(paces):.1f}.\n"
    yield "| process | MiB before | after each time | CPU µs a token |"
    yield "|---|---|---|---|"
    for pid in memory[-1]:  # an HAProxy that has handed over to another one may have ended
        first, *later = (round(one[pid] / MIB) for one in memory)
        spent = (cpu_s(pid) - cpu[pid]) / count * 1e6
        yield f"| {names[pid]} | {first} | {', '.join(map(str, later))} | {spent:.1f} |"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.open_streams", description=__doc__)
    parser.add_argument("--streams", type=int, default=1000)
    parser.add_argument("--every", type=float, default=1.0, help="seconds between two tokens")
    parser.add_argument("--tokens", type=int, default=30, help="of each answer")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--limit", type=float, default=300.0, help="most seconds of a round")
    arguments = parser.parse_args()
    with mock_config(arguments.every) as config, serving(config) as server:
        wishes = (arguments.streams, arguments.tokens, arguments.rounds, arguments.limit)
        for line in measure(server, *wishes):
            print(line, flush=True)


if __name__ == "__main__":
    main()
