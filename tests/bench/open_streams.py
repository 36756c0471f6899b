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
from tests.bench.processes import TICK_S
from tests.bench.sse import Stream
from tests.serving import ROOT, Server, serving

PRESET = ROOT / "configs" / "presets" / "mock.yaml"
MIB = 1024


@contextmanager
def mock_config(every_s: float) -> Iterator[Path]:
    """The preset of the scripted model at this pace, without limits that streams could reach."""
    config: dict[str, Any] = yaml.safe_load(PRESET.read_text())
    (application,) = config["applications"]
    application["args"]["models"][0]["factory_args"] |= {"inter_token_s": every_s}
    for deployment in application["deployments"]:
        deployment["max_ongoing_requests"] = 100_000
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "mock.yaml"
        path.write_text(yaml.safe_dump(config))
        yield path


async def ask_all(url: str, streams: int, tokens: int) -> list[Stream]:
    """All at once, each for so many tokens; every answer must be whole."""
    ask = over_http(Endpoint(url, "mock"))
    results = [Stream() for _ in range(streams)]
    await asyncio.gather(*(ask(f"{i}", tokens, one) for i, one in enumerate(results)))
    for one in results:
        assert not one.error, one.error
        assert one.tokens == tokens, one.tokens
    return results


def resident_kib(pid: int) -> int:
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:  # it has ended
        return 0
    return next((int(line.split()[1]) for line in lines if line.startswith("VmRSS")), 0)


def cpu_s(pid: int) -> float:
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) * TICK_S


def title(pid: int) -> str:
    words = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode().split()
    return words[0] if words[0].startswith("ray::") else ""


def replicas(server: Server) -> Mapping[int, str]:
    """The processes that streams pass, by what Ray calls them."""
    named = {pid: title(pid) for pid in server.processes()}
    return {pid: name for pid, name in named.items() if "Replica" in name or "Proxy" in name}


def measure(server: Server, streams: int, tokens: int, rounds: int) -> Iterator[str]:
    """The table's lines."""
    uvloop.run(ask_all(server.url, streams, 10))  # all that is made once for so many streams
    names = replicas(server)
    memory = [{pid: resident_kib(pid) for pid in names}]
    cpu = {pid: cpu_s(pid) for pid in names}
    began = time.perf_counter()
    for _ in range(rounds):
        results = uvloop.run(ask_all(server.url, streams, tokens))
        memory.append({pid: resident_kib(pid) for pid in names})
    took = time.perf_counter() - began
    count = rounds * streams * tokens
    paces = [(tokens - 1) / (one.arrivals[-1] - one.arrivals[0]) for one in results]
    yield f"{streams} streams, {rounds} times {tokens} tokens each: {count / took:.0f} tokens/s;"
    yield f"the slowest of the last came at {min(paces):.1f} tokens/s, the median at"
    yield f"{statistics.median(paces):.1f}.\n"
    yield "| process | MiB before | after each time | CPU µs a token |"
    yield "|---|---|---|---|"
    for pid, name in names.items():
        first, *later = (round(one[pid] / MIB) for one in memory)
        spent = (cpu_s(pid) - cpu[pid]) / count * 1e6
        yield f"| {name} | {first} | {', '.join(map(str, later))} | {spent:.1f} |"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.open_streams", description=__doc__)
    parser.add_argument("--streams", type=int, default=1000)
    parser.add_argument("--every", type=float, default=1.0, help="seconds between two tokens")
    parser.add_argument("--tokens", type=int, default=30, help="of each answer")
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    with mock_config(arguments.every) as config, serving(config) as server:
        for line in measure(server, arguments.streams, arguments.tokens, arguments.rounds):
            print(line, flush=True)


if __name__ == "__main__":
    main()
