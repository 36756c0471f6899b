"""Runs the scenarios on servers, in rounds, and keeps what it finds after each."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import uvloop

from configs.shipped import default_model
from tests.bench.bare import FIGURES
from tests.bench.client import Ask, Endpoint, over_http
from tests.bench.figures import Figures, figures
from tests.bench.launch import NotStarted, running
from tests.bench.prompts import Prompts
from tests.bench.results import Record, Results, Role, Shown, Start
from tests.bench.scenarios import Scenario, run, warm_up
from tests.bench.servers import Server
from tests.serving import ROOT

T = TypeVar("T")
Say = Callable[[str], None]
CpuTimes = Callable[[], dict[str, float]]
BARE = ("A", "B", "C")  # what the engine alone is asked


@dataclass(frozen=True)
class Plan:
    """What is run; no scenario takes longer than `limit_s`. All files go below `folder`."""

    scenarios: Sequence[Scenario]
    rounds: int
    seed: str
    limit_s: float
    folder: Path

    @property
    def file(self) -> Path:
        return self.folder / "results.json"


class Comparison:
    """Fills `results` and saves them after every scenario, so that a run may be cut short."""

    def __init__(self, plan: Plan, prompts: Prompts, results: Results, say: Say) -> None:
        plan.folder.mkdir(parents=True, exist_ok=True)
        self.results = results
        self._plan = plan
        self._prompts = prompts
        self._say = say

    def servers(self, servers: Sequence[Server], peers: Path, with_engine: bool) -> None:
        """All of them in turn, and that again each round. What fails does not end the run."""
        for server in servers:
            role: Role = "peer" if server.engine is None else "ours"
            self.results.servers[server.name] = Shown(server.label, server.precision, role)
            if not server.installed(peers):
                self._problem(server.name, "not installed: see tests/bench/README.md")
        present = [server for server in servers if server.installed(peers)]
        for number in range(1, self._plan.rounds + 1):
            for server in present:
                alone = with_engine and server.engine is not None
                if alone:
                    self._engine(server, number)
                self._server(server, peers, number)
                if alone:  # again: the machine's own speed changes within minutes
                    self._engine(server, number)

    def url(self, endpoint: Endpoint) -> None:
        """A server that runs already."""
        name = endpoint.url
        self.results.servers[name] = Shown(f"{endpoint.model} at {endpoint.url}")
        for number in range(1, self._plan.rounds + 1):
            self._scenarios(name, number, over_http(endpoint), lambda: {})

    def _server(self, server: Server, peers: Path, number: int) -> None:
        self._say(f"round {number}: {server.label}")
        try:
            with running(server, peers, self._plan.folder / "logs") as started:
                self.results.starts.append(Start(server.name, number, started.start_s))
                self._say(f"  answers after {started.start_s:.1f} s")
                self._scenarios(server.name, number, over_http(started.endpoint), started.cpu_s)
        except NotStarted as error:
            self._problem(server.name, str(error))

    def _scenarios(self, name: str, number: int, ask: Ask, cpu_s: CpuTimes) -> None:
        seed = (self._plan.seed, number)
        during = "the first requests"
        try:
            first = self._run(warm_up(ask, self._prompts, *seed))
            if first.error:
                self._problem(name, first.error)
                return
            for scenario in self._plan.scenarios:
                during = scenario.name
                found = self._scenario(scenario, ask, cpu_s, seed)
                self._record(name, scenario.name, number, found)
        except TimeoutError:
            self._problem(name, f"{during}: not done after {self._plan.limit_s:.0f} s")

    def _scenario(
        self, scenario: Scenario, ask: Ask, cpu_s: CpuTimes, seed: tuple[str, int]
    ) -> Figures:
        before, own = cpu_s(), time.process_time()
        happened = self._run(run(scenario, ask, self._prompts, *seed))
        client = time.process_time() - own
        spent = {kind: after - before.get(kind, 0.0) for kind, after in cpu_s().items()}
        return figures(happened, {"client": client, **spent})

    def _run(self, work: Coroutine[None, None, T]) -> T:
        async def limited() -> T:
            async with asyncio.timeout(self._plan.limit_s):
                return await work

        return uvloop.run(limited())

    def _engine(self, server: Server, number: int) -> None:
        """The engine of our server alone, in a process of its own."""
        names = [one.name for one in self._plan.scenarios if one.name in BARE]
        if not names:
            return
        name = f"{server.name}, engine"
        label = f"{server.label}: the engine alone"
        self.results.servers[name] = Shown(label, server.precision, "engine", server.name)
        self._say(f"round {number}: {label}")
        model = default_model()
        model["engine"] |= server.engine or {}
        file = self._plan.folder / "engine.json"
        command = [sys.executable, "-m", "tests.bench.bare", json.dumps(model), ",".join(names)]
        command += [self._plan.seed, str(file.resolve())]
        limit_s = self._plan.limit_s * (len(names) + 1)  # its start, and each scenario
        if problem := problem_of(command, limit_s):
            self._problem(name, problem)
            return
        for scenario, found in FIGURES.validate_json(file.read_bytes()).items():
            self._record(name, scenario, number, found)
        file.unlink()

    def _record(self, name: str, scenario: str, number: int, found: Figures) -> None:
        self.results.records.append(Record(name, scenario, number, found))
        self._say(f"  {scenario}: {found.tokens_per_s:.1f} tokens/s in {found.seconds:.0f} s")
        if found.failed:
            self._problem(name, f"{scenario}: {found.failed} of {found.asked}: {found.error}")
        self.results.save(self._plan.file)

    def _problem(self, name: str, problem: str) -> None:
        self._say(f"  {name}: {problem}")
        self.results.add_problem(name, problem)
        self.results.save(self._plan.file)


def problem_of(command: Sequence[str], limit_s: float) -> str:
    """Runs it; why it failed, empty if it did not."""
    try:
        done = subprocess.run(
            command, cwd=ROOT, stderr=subprocess.PIPE, text=True, timeout=limit_s, check=False
        )
    except subprocess.TimeoutExpired:
        return f"not done after {limit_s:.0f} s"
    return done.stderr[-1000:] if done.returncode else ""
