"""How much ``@serve.batch`` behind the gate costs against a hand-written loop.

``python -m tests.bench.step_batching`` prints a Markdown table. Both run the same engine over the
same arrivals in one process, in turns, on the loop a replica runs on; medians of all rounds.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import random
import statistics
import tempfile
import time
from collections import abc
from contextlib import aclosing
from dataclasses import dataclass, field
from pathlib import Path

import uvloop
from filelock import FileLock

from configs.settings import EngineSettings, ModelSettings
from configs.shipped import default_model
from deployments.step_gate import StepGate
from models.life import Steps
from models.metrics import LlmMetrics
from models.request import SamplingParams
from models.schedule.admission import Admission
from models.schedule.sequence import Chunk, Scores
from models.step.model import Capacity, InFlight, StepModel
from models.step_loop import StepLoop
from models.stepper import Stepper
from models.token_engine import TokenEngine
from models.tokens import TokenRequest, Tokens
from tests.deployments.replica import replica_context

ARRIVE_WITHIN_S = 0.5
TOKENS = (60, 140)  # of one answer
PROMPT_TOKENS = 8
STEP_TOKENS = 1024
LOCK = Path(tempfile.gettempdir()) / "stepserve-bench.lock"


@dataclass(frozen=True)
class Ready:
    values: list[int]

    def tokens(self) -> list[int]:
        return self.values

    def scores(self) -> list[Scores]:
        return []


class SleepingModel:
    """A step takes ``seconds``, whatever is in it."""

    launch_ahead = False

    def __init__(self, slots: int, seconds: float) -> None:
        self.capacity = Capacity(4096, 1000, slots, slots * 256, 16, prefix_cache=False)
        self._seconds = seconds

    def launch(self, chunks: abc.Sequence[Chunk]) -> InFlight:
        time.sleep(self._seconds)
        return Ready([1 for chunk in chunks if chunk.samples])

    def release(self, slot: int) -> None: ...

    def reset(self) -> None: ...

    def describe(self) -> dict[str, str]:
        return {"device": f"sleeps {self._seconds * 1000:g} ms"}


@dataclass
class Watched:
    """Passes every call on to a model and notes its batches, and how long it idled between them."""

    model: StepModel
    batches: list[int] = field(default_factory=list)
    idle_s: list[float] = field(default_factory=list)
    _ended: float | None = None

    def __post_init__(self) -> None:
        self.capacity = self.model.capacity
        self.launch_ahead = self.model.launch_ahead
        self.release = self.model.release
        self.reset = self.model.reset
        self.describe = self.model.describe

    def launch(self, chunks: abc.Sequence[Chunk]) -> InFlight:
        if self._ended is not None:
            self.idle_s.append(time.perf_counter() - self._ended)
        self.batches.append(len(chunks))
        step = self.model.launch(chunks)
        self._ended = time.perf_counter()
        return step


@dataclass(frozen=True)
class Result:
    mean_batch: float
    tokens_per_s: float
    idle_us: float  # median, between two steps


@dataclass(frozen=True)
class Load:
    """Requests of random lengths that arrive at random moments; the same for the same seed."""

    sequences: int
    tokens: tuple[int, int] = TOKENS
    within_s: float = ARRIVE_WITHIN_S

    def requests(self) -> list[tuple[float, TokenRequest]]:
        random_ = random.Random(self.sequences)
        return [
            (random_.random() * self.within_s, self._request(index, random_.randint(*self.tokens)))
            for index in range(self.sequences)
        ]

    def _request(self, index: int, count: int) -> TokenRequest:
        sampling = SamplingParams(max_tokens=count, temperature=0, ignore_eos=True)
        prompt = tuple(range(1, PROMPT_TOKENS + 1))
        return TokenRequest(f"bench-{index}", prompt, sampling, frozenset())


def over_loop(stepper: Stepper) -> Steps:
    return StepLoop(stepper)


def over_batch(stepper: Stepper) -> Steps:
    return StepGate(stepper.step)


async def measure(model: StepModel, path: abc.Callable[[Stepper], Steps], load: Load) -> Result:
    """Runs one load over one way to form steps."""
    watched = Watched(model)
    metrics = LlmMetrics("bench")
    stepper = Stepper(watched, step_tokens=STEP_TOKENS, metrics=metrics)
    slots = model.capacity.slots
    engine = TokenEngine(stepper, path(stepper), Admission(slots, 0, 0), metrics)
    began = time.perf_counter()
    counts = await asyncio.gather(*(_answer(engine, *item) for item in load.requests()))
    took = time.perf_counter() - began
    stepper.close()
    return Result(
        mean_batch=statistics.mean(watched.batches),
        tokens_per_s=sum(counts) / took,
        idle_us=statistics.median(watched.idle_s) * 1e6,
    )


async def _answer(engine: TokenEngine, wait_s: float, request: TokenRequest) -> int:
    await asyncio.sleep(wait_s)
    async with aclosing(engine.generate(request)) as items:
        return sum([len(item.token_ids) async for item in items if isinstance(item, Tokens)])


def compare(model: StepModel, load: Load, rounds: int = 1) -> tuple[Result, Result]:
    """The loop's result, then ``@serve.batch``'s."""
    with replica_context(max_ongoing_requests=1000):
        pairs = [
            [uvloop.run(measure(model, path, load)) for path in (over_loop, over_batch)]
            for _ in range(rounds)
        ]
    loops, batches = zip(*pairs, strict=True)
    return _median(loops), _median(batches)


def _median(results: abc.Sequence[Result]) -> Result:
    return Result(
        mean_batch=statistics.median(result.mean_batch for result in results),
        tokens_per_s=statistics.median(result.tokens_per_s for result in results),
        idle_us=statistics.median(result.idle_us for result in results),
    )


HEADER = """\
| model | sequences | path | mean batch | tokens/s | idle between steps, µs |
|---|---|---|---|---|---|"""


def rows(name: str, sequences: int, loop: Result, batch: Result) -> str:
    """Three lines of the table: both paths, and what share of the loop the batches reach."""
    share = (
        f"| {name} | {sequences} | share | {batch.mean_batch / loop.mean_batch:.1%} "
        f"| {batch.tokens_per_s / loop.tokens_per_s:.1%} | |"
    )
    return "\n".join(
        [
            _row(name, sequences, "hand-written loop", loop),
            _row(name, sequences, "`@serve.batch` + gate", batch),
            share,
        ]
    )


def _row(name: str, sequences: int, path: str, result: Result) -> str:
    return (
        f"| {name} | {sequences} | {path} | {result.mean_batch:.1f} "
        f"| {result.tokens_per_s:.0f} | {result.idle_us:.0f} |"
    )


def _real(source: str, slots: int) -> StepModel:
    from models.build import ServedSteps, build_model

    settings = ModelSettings(
        name="bench", source=source, engine=EngineSettings(max_running=slots, prefix_cache=False)
    )
    built = build_model(settings, LlmMetrics("bench"))
    assert isinstance(built, ServedSteps)
    return built.stepper.model


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sequences", type=int, nargs="+", default=[8, 32, 128])
    parser.add_argument("--step-ms", type=float, default=10.0, help="of the fake step")
    parser.add_argument("--rounds", type=int, default=3, help="of each pair, in turns")
    parser.add_argument("--model", default=default_model()["source"], help="the real one; '': none")
    arguments = parser.parse_args()
    logging.getLogger("ray.serve").setLevel(logging.ERROR)
    with FileLock(LOCK):
        print(HEADER)
        for count in arguments.sequences:
            fake = SleepingModel(count, arguments.step_ms / 1000)
            print(
                rows(
                    f"{arguments.step_ms:g} ms",
                    count,
                    *compare(fake, Load(count), arguments.rounds),
                ),
                flush=True,
            )
        if arguments.model:
            for count in arguments.sequences:
                model = _real(arguments.model, count)
                print(
                    rows("real", count, *compare(model, Load(count), arguments.rounds)), flush=True
                )


if __name__ == "__main__":
    main()
