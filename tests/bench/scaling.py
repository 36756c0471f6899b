"""What it gains to scale a model's replicas by their work instead of by their requests.

``python -m tests.bench.scaling`` prints a Markdown table. A fleet is simulated, of replicas whose
steps take what ``STEP`` says; what is decided for it, and when, Serve's own code decides.
"""

from __future__ import annotations

import math
import random
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ray.serve.autoscaling_policy import (
    _apply_delay_logic,
    _apply_scaling_factors,
    default_autoscaling_policy,
)
from ray.serve.config import AutoscalingConfig, AutoscalingContext

from deployments.autoscaling import ByWork
from models.schedule.step_time import Load, StepTime
from models.schedule.work import Work
from tests.bench.figures import percentile

STEP = (0.012, 0.002, 0.00045)  # seconds: as such, of a row, of a prompt's token
RUNNING, BUDGET = 32, 512  # sequences, and prompt tokens, of a step
START_S = 20.0  # of a replica
MOST = 10  # replicas
PUSH_S, LOOK_BACK_S = 10, 30  # as Serve's
HEADER = (
    "| requests | by | replica minutes | first token, s: median | p95 of the worst phase |\n"
    "|---|---|---|---|---|"
)

Policy = Callable[[AutoscalingContext], tuple[float, dict[str, Any]]]


@dataclass(frozen=True)
class Phase:
    """Requests at a rate, a second, with lognormal lengths around these, in tokens."""

    rate: float
    prompt: int
    answer: int
    seconds: float = 420.0


def _chats(rate: float) -> Phase:
    return Phase(rate, 100, 100)


def _documents(rate: float) -> Phase:
    return Phase(rate, 3000, 80)


def _essays(rate: float) -> Phase:
    return Phase(rate, 100, 800)


LOADS: Mapping[str, Sequence[Phase]] = {
    "chats, five times as many for a while": [_chats(1.2), _chats(6.0), _chats(1.2)],
    "documents, likewise": [_documents(0.25), _documents(1.3), _documents(0.25)],
    "essays, likewise": [_essays(0.15), _essays(0.9), _essays(0.15)],
    "chats, documents, essays, chats": [_chats(3.0), _documents(0.8), _essays(0.5), _chats(3.0)],
}


@dataclass(eq=False)
class Request:
    """What is left to compute of it, in tokens, and when its first token came."""

    phase: int
    came: float
    prompt: int
    answer: int
    first: float = math.inf


@dataclass(eq=False)
class Replica:
    """Answers from ``ready`` on; ``now`` is when its last step ended."""

    ready: float
    now: float = 0.0
    going: bool = False
    waiting: deque[Request] = field(default_factory=deque)
    running: list[Request] = field(default_factory=list)
    looks: deque[tuple[float, float, float]] = field(
        default_factory=lambda: deque(maxlen=LOOK_BACK_S)
    )
    ended: int = 0
    steps: int = 0

    def __post_init__(self) -> None:
        self.now = self.ready
        self._time = StepTime()
        self._work = Work(self._time)

    @property
    def ongoing(self) -> int:
        return len(self.waiting) + len(self.running)

    def take(self, request: Request) -> None:
        if not self.ongoing:
            self.now = max(self.now, request.came)
        self.waiting.append(request)

    def advance(self, until: float) -> None:
        while self.ongoing and self.now < until:
            self._step()

    def look(self) -> None:
        """Notes what a second brought: requests, load, and what waits."""
        load = self._work.take(RUNNING, self.ended)
        self.ended = 0
        waits = len(self.waiting) * self._work.usual(len(self.running))
        self.looks.append((float(self.ongoing), load, waits))

    def mean(self, figure: int) -> float:
        return sum(look[figure] for look in self.looks) / len(self.looks)

    def _step(self) -> None:
        while self.waiting and len(self.running) < RUNNING:
            self.running.append(self.waiting.popleft())
        load, speaking = Load(), []
        for request in self.running:
            if request.prompt:
                count = min(request.prompt, BUDGET - load.tokens)
                request.prompt -= count
                load.tokens += count
                speaking += [request] if count and not request.prompt else []
            else:
                load.rows += 1
                speaking.append(request)
        seconds = sum(a * b for a, b in zip(STEP, load.parts, strict=False))
        self.now += seconds
        self.steps += 1
        if self.steps < 50 or self.steps % 8 == 0:  # to be done sooner
            self._time.observe(load, seconds)
        self._work.did(load)
        self._speak(speaking)

    def _speak(self, speaking: Sequence[Request]) -> None:
        for request in speaking:
            request.answer -= 1
            request.first = min(request.first, self.now)
        left = [request for request in self.running if request.answer > 0]
        self.ended += len(self.running) - len(left)
        self.running = left


class Fleet:
    """Replicas that a policy adds and takes away, second by second."""

    def __init__(self, policy: Policy, target: float) -> None:
        self._policy = policy
        self._config = AutoscalingConfig(
            min_replicas=1,
            max_replicas=MOST,
            target_ongoing_requests=target,
            upscale_delay_s=10,
            downscale_delay_s=120,
        )
        self._state: dict[str, Any] = {}
        self._replicas = [Replica(0.0)]
        self._goal = 1
        self._seen: dict[Any, tuple[float, float, float]] = {}
        self.seconds = 0  # of all replicas

    @property
    def ongoing(self) -> int:
        return sum(replica.ongoing for replica in self._replicas)

    def second(self, now: float, came: Sequence[Request]) -> None:
        """The one that ends ``now``."""
        live = [one for one in self._replicas if one.ready < now and not one.going]
        for request in came:
            for replica in live:
                replica.advance(request.came)
            min(live, key=lambda one: one.ongoing).take(request)
        for replica in self._replicas:
            replica.advance(now)
        self._replicas = [one for one in self._replicas if one.ongoing or not one.going]
        self.seconds += len(self._replicas)
        for replica in live:
            replica.look()
        if now % PUSH_S == 0:
            self._seen = {one: (one.mean(0), one.mean(1), one.mean(2)) for one in live}
        if self._seen:
            self._scale(self._decided(now, len(live)), now)

    def _decided(self, now: float, live: int) -> int:
        requests = sum(figures[0] for figures in self._seen.values())
        told = {
            name: {one: figures[place] for one, figures in self._seen.items()}
            for place, name in ((1, "load"), (2, "waiting_s"))
        }
        context: Any = AutoscalingContext(
            deployment_id=None,  # type: ignore[arg-type]
            deployment_name="Model",
            app_name=None,
            current_num_replicas=live,
            target_num_replicas=self._goal,
            running_replicas=[],
            total_num_requests=requests,
            total_queued_requests=0.0,
            aggregated_metrics=told,
            raw_metrics=None,
            capacity_adjusted_min_replicas=1,
            capacity_adjusted_max_replicas=MOST,
            policy_state=self._state,
            last_scale_up_time=None,
            last_scale_down_time=None,
            current_time=now,
            config=self._config,
        )
        wanted = _apply_scaling_factors(self._policy(context)[0], live, self._config)
        decided, self._state = _apply_delay_logic(
            wanted, self._goal, self._config, self._state, _now=now
        )
        return max(1, min(MOST, decided))

    def _scale(self, goal: int, now: float) -> None:
        staying = sorted((one for one in self._replicas if not one.going), key=lambda o: o.ongoing)
        for replica in staying[: max(0, self._goal - goal)]:
            replica.going = True
            self._seen.pop(replica, None)
        for _ in range(goal - self._goal):
            self._replicas.append(Replica(now + START_S))
        self._goal = goal


@dataclass(frozen=True)
class Outcome:
    """What a fleet cost, and the seconds to first tokens, by phase."""

    replica_minutes: float
    waits: Sequence[Sequence[float]]

    @property
    def median(self) -> float:
        return percentile([wait for phase in self.waits for wait in phase], 50) or 0.0

    @property
    def worst(self) -> float:
        """The 95th percentile of the phase where that is longest."""
        return max(percentile(phase, 95) or 0.0 for phase in self.waits)


def simulate(phases: Sequence[Phase], policy: Policy, target: float, seed: int = 1) -> Outcome:
    """Until all are answered."""
    requests = list(_requests(phases, random.Random(seed)))
    fleet, coming, now = Fleet(policy, target), deque(requests), 0.0
    while coming or fleet.ongoing:
        now += 1.0
        came = []
        while coming and coming[0].came <= now:
            came.append(coming.popleft())
        fleet.second(now, came)
    waits = [[r.first - r.came for r in requests if r.phase == i] for i in range(len(phases))]
    return Outcome(fleet.seconds / 60, waits)


def _requests(phases: Sequence[Phase], chance: random.Random) -> Iterator[Request]:
    begins = 0.0
    for i, phase in enumerate(phases):
        came = begins + chance.expovariate(phase.rate)
        begins += phase.seconds
        while came < begins:
            prompt = chance.lognormvariate(math.log(phase.prompt), 0.5)
            answer = chance.lognormvariate(math.log(phase.answer), 0.7)
            yield Request(i, came, max(8, int(prompt)), max(4, int(answer)))
            came += chance.expovariate(phase.rate)


def main() -> None:
    """Prints the table."""
    print(HEADER)
    for about, phases in LOADS.items():
        for target in (4, 8, 16, 24):
            _print(about, f"{target} ongoing", simulate(phases, default_autoscaling_policy, target))
        for load in (0.5, 0.65, 0.8):
            _print(about, f"work, load {load}", simulate(phases, ByWork(load), 16))


def _print(about: str, by: str, seen: Outcome) -> None:
    figures = f"{seen.replica_minutes:.0f} | {seen.median:.1f} | {seen.worst:.1f}"
    print(f"| {about} | {by} | {figures} |", flush=True)


if __name__ == "__main__":
    main()
