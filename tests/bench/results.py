"""What a benchmark found, as a JSON file; several files make one."""

from __future__ import annotations

import os
import platform
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Literal

from pydantic import TypeAdapter

from tests.bench.figures import Figures, median

Role = Literal["ours", "engine", "peer"]


@dataclass(frozen=True)
class Shown:
    """A server as the table names it; ``of`` is the server that an engine is the engine of."""

    label: str
    precision: str = ""
    role: Role = "peer"
    of: str = ""


@dataclass(frozen=True)
class Record:
    """One run of a scenario on a server."""

    server: str
    scenario: str
    round: int
    figures: Figures


@dataclass(frozen=True)
class Start:
    """Seconds from the start of the process to its first answer."""

    server: str
    round: int
    seconds: float


@dataclass
class Results:
    """``problems`` are by server: not installed, not started, or what a scenario failed with."""

    machine: str
    servers: dict[str, Shown] = field(default_factory=dict)
    starts: list[Start] = field(default_factory=list)
    records: list[Record] = field(default_factory=list)
    problems: dict[str, list[str]] = field(default_factory=dict)

    def save(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        whole = path.with_suffix(".new")
        whole.write_bytes(FILE.dump_json(self, indent=1))
        whole.replace(path)

    def scenarios(self) -> list[str]:
        return sorted({record.scenario for record in self.records})

    def figures(self, server: str, scenario: str) -> Figures | None:
        """The medians of all runs, each figure by itself; None if there was none."""
        return medians(
            [
                record.figures
                for record in self.records
                if (record.server, record.scenario) == (server, scenario)
            ]
        )

    def start_s(self, server: str) -> float | None:
        return median([start.seconds for start in self.starts if start.server == server])

    def add_problem(self, server: str, problem: str) -> None:
        self.problems.setdefault(server, []).append(problem)


FILE = TypeAdapter(Results)


def load(path: Path) -> Results:
    return FILE.validate_json(path.read_bytes())


def merged(results: Iterable[Results]) -> Results:
    """All runs of all files, as if they had been one."""
    whole, *others = results
    for other in others:
        if other.machine not in whole.machine:
            whole = replace(whole, machine=f"{whole.machine}; {other.machine}")
        whole.servers.update(other.servers)
        whole.starts += other.starts
        whole.records += other.records
        for server, problems in other.problems.items():
            for problem in problems:
                whole.add_problem(server, problem)
    return whole


def medians(runs: Sequence[Figures]) -> Figures | None:
    if not runs:
        return None
    numbers: dict[str, float | None] = {}
    for one in fields(Figures):
        values = [getattr(run, one.name) for run in runs]
        if one.name not in ("cost_us", "error"):
            numbers[one.name] = median([value for value in values if value is not None])
    for counted in ("tokens", "prompt_tokens", "asked", "failed"):
        numbers[counted] = int(numbers[counted] or 0)
    error = next((run.error for run in runs if run.error), "")
    whole: dict[str, object] = {**numbers, "error": error}
    return replace(runs[0], cost_us=_costs(runs), **whole)  # type: ignore[arg-type]


def this_machine() -> str:
    """Cores, memory and processor, in words."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    cores = len(os.sched_getaffinity(0))
    return f"{cores} cores of {_processor()}, {memory:.0f} GiB"


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        return next(line.partition(": ")[2] for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.machine()


def _costs(runs: Sequence[Figures]) -> Mapping[str, float]:
    kinds = dict.fromkeys(kind for run in runs for kind in run.cost_us)
    return {kind: statistics.median(run.cost_us.get(kind, 0.0) for run in runs) for kind in kinds}
