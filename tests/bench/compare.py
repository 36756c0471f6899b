"""Runs the scenarios on servers, in rounds, and keeps what it finds after each."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import uvloop

from tests.bench.alone import Silent, command_of, engine_alone
from tests.bench.client import Ask, Endpoint, over_http
from tests.bench.figures import Figures, figures
from tests.bench.launch import NotStarted, Running, running
from tests.bench.processes import standing_still
from tests.bench.prompts import Prompts
from tests.bench.results import Record, Results, Role, Shown, Start
from tests.bench.scenarios import Scenario, run, warm_up
from tests.bench.servers import SOURCE, Server

T = TypeVar("T")
Say = Callable[[str], None]
CpuTimes = Callable[[], dict[str, float]]
Beside = Callable[[Scenario], None]
ALONE = {"A", "B", "C"}  # what the engine alone is asked as well


@dataclass(frozen=True)
class Plan:
    """What is run; no scenario takes longer than ``limit_s``. All files go below ``folder``.

    A server rests for ``rest_s`` after its start: what it does then is no part of its speed.
    """

    scenarios: Sequence[Scenario]
    rounds: int
    seed: str
    limit_s: float
    folder: Path
    rest_s: float = 5.0
    source: str = SOURCE

    @property
    def file(self) -> Path:
        return self.folder / "results.json"


def nothing(scenario: Scenario) -> None:
    """Beside a server that is compared with others only."""


class Comparison:
    """Fills ``results`` and saves them after every scenario, so that a run may be cut short."""

    def __init__(self, plan: Plan, prompts: Prompts, results: Results, say: Say) -> None:
        plan.folder.mkdir(parents=True, exist_ok=True)
        self.results = results
        self._plan = plan
        self._prompts = prompts
        self._say = say

    @property
    def _logs(self) -> Path:
        return self._plan.folder / "logs"

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
                self._server(server, peers, number, with_engine)

    def url(self, endpoint: Endpoint) -> None:
        """A server that runs already."""
        name = endpoint.url
        self.results.servers[name] = Shown(f"{endpoint.model} at {endpoint.url}")
        for number in range(1, self._plan.rounds + 1):
            self._scenarios(name, number, over_http(endpoint), lambda: {})

    def _server(self, server: Server, peers: Path, number: int, with_engine: bool) -> None:
        self._say(f"round {number}: {server.label}")
        try:
            with ExitStack() as stack:
                source = self._plan.source
                started = stack.enter_context(running(server, peers, self._logs, source))
                self.results.starts.append(Start(server.name, number, started.start_s))
                self._say(f"  answers after {started.start_s:.1f} s")
                time.sleep(self._plan.rest_s)
                beside = self._engine(stack, started, number) if with_engine else nothing
                ask = over_http(started.endpoint)
                self._scenarios(server.name, number, ask, started.cpu_s, beside)
        except NotStarted as error:
            self._problem(server.name, str(error))

    def _engine(self, stack: ExitStack, started: Running, number: int) -> Beside:
        """What asks the engine of our server alone the same; it ends with ``stack``."""
        server = started.server
        if server.engine is None or not ALONE & {one.name for one in self._plan.scenarios}:
            return nothing
        name, label = f"{server.name}, engine", f"{server.label}: the engine alone"
        self.results.servers[name] = Shown(label, server.precision, "engine", server.name)
        log = self._logs / f"{server.name}-engine.log"
        try:
            with standing_still(started.mark):
                command = command_of(self._plan.source, server.engine)
                engine = stack.enter_context(engine_alone(command, log, self._plan.limit_s))
        except Silent as error:
            self._problem(name, str(error))
            return nothing

        def turn(scenario: Scenario) -> None:
            if scenario.name in ALONE:
                with standing_still(started.mark):
                    found = engine.turn(scenario.name, self._plan.seed, number)
                self._record(name, scenario.name, number, found)

        return turn

    def _scenarios(
        self, name: str, number: int, ask: Ask, cpu_s: CpuTimes, beside: Beside = nothing
    ) -> None:
        """One by one, ``beside`` after each."""
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
                beside(scenario)
        except TimeoutError:
            self._problem(name, f"{during}: not done after {self._plan.limit_s:.0f} s")
        except Silent as error:
            self._problem(name, f"{during}: the engine alone: {error}")

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
