"""What speculation gains where text repeats, and what it costs where nothing can be guessed.

``python -m tests.bench.speculation [--model SOURCE] [--dtype int8]`` prints a Markdown table: the
same greedy streams with and without guesses, in turns, over one loaded model without Ray.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import time
from collections.abc import Sequence
from contextlib import aclosing
from dataclasses import dataclass

from configs.settings import EngineSettings, ModelSettings
from configs.shipped import default_model
from models.build import ServedSteps, build_model
from models.metrics import LlmMetrics
from models.request import SamplingParams
from models.schedule.admission import Admission
from models.schedule.lookup import Drafting
from models.step.model import StepModel
from models.step_loop import StepLoop
from models.stepper import Stepper
from models.token_engine import TokenEngine
from models.tokens import TokenRequest, Tokens

TASKS = {  # by temperature
    # A model that has seen a run of tokens several times goes on with it.
    "repetitive": 0.0,
    # From a flat distribution: what comes next has nothing to do with what came.
    "random": 2.0,
}


@dataclass(frozen=True)
class Pace:
    """Tokens a second of all streams; drafted and accepted tokens."""

    tokens_per_s: float
    drafted: int
    accepted: int


def prompt(stream: int, task: str) -> tuple[int, ...]:
    """128 tokens: a passage of 16 again and again, or as many different ones."""
    period = 16 if task == "repetitive" else 128
    return tuple(50 + (stream * 131 + i % period * 7) % 200 for i in range(128))


async def measure(
    model: StepModel, task: str, streams: int, tokens: int, drafting: Drafting | None
) -> Pace:
    metrics = LlmMetrics("bench")
    stepper = Stepper(model, step_tokens=2048, metrics=metrics, drafting=drafting)
    engine = TokenEngine(stepper, StepLoop(stepper), Admission(streams, 0, 10**6), metrics)
    await _answer(engine, "warm", task, 8)
    began = time.perf_counter()
    await asyncio.gather(*(_answer(engine, str(i), task, tokens) for i in range(streams)))
    took = time.perf_counter() - began
    stepper.close()
    return Pace(
        streams * tokens / took,
        _count(metrics, "drafted_tokens"),
        _count(metrics, "accepted_tokens"),
    )


async def _answer(engine: TokenEngine, name: str, task: str, tokens: int) -> None:
    stream = int(name) if name.isdigit() else 0
    sampling = SamplingParams(
        max_tokens=tokens, temperature=TASKS[task], seed=stream, ignore_eos=True
    )
    request = TokenRequest(name, prompt(stream, task), sampling, frozenset())
    async with aclosing(engine.generate(request)) as items:
        seen = sum([len(item.token_ids) async for item in items if isinstance(item, Tokens)])
    assert seen == tokens


def _count(metrics: LlmMetrics, name: str) -> int:
    value = metrics.registry.get_sample_value(f"stepserve_{name}_total", {"model": "bench"})
    return int(value or 0)


HEADER = """\
| task | streams | tokens/s: without | with | ratio | drafted | accepted |
|---|---|---|---|---|---|---|"""


def row(task: str, streams: int, without: Sequence[Pace], with_: Sequence[Pace]) -> str:
    """Medians of all rounds."""
    before = statistics.median(pace.tokens_per_s for pace in without)
    after = statistics.median(pace.tokens_per_s for pace in with_)
    drafted, accepted = with_[-1].drafted, with_[-1].accepted
    return (
        f"| {task} | {streams} | {before:.1f} | {after:.1f} | {after / before:.2f} "
        f"| {drafted} | {accepted} |"
    )


def compare(
    model: StepModel, task: str, streams: int, tokens: int, drafting: Drafting, rounds: int
) -> str:
    """One line of the table."""
    paces: dict[bool, list[Pace]] = {False: [], True: []}
    for _ in range(rounds):
        for drafts, seen in paces.items():
            wish = drafting if drafts else None
            seen.append(asyncio.run(measure(model, task, streams, tokens, wish)))
    return row(task, streams, paces[False], paces[True])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--model", default=default_model()["source"], help="as in serve_config.yaml"
    )
    parser.add_argument("--dtype", default="auto")
    parser.add_argument("--tokens", type=int, default=128, help="of one answer")
    parser.add_argument("--streams", type=int, nargs="+", default=[1, 8])
    parser.add_argument("--drafted", type=int, default=8, help="`speculative_tokens`")
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    wishes = {"max_running": max(arguments.streams), "prefix_cache": False}
    engine = EngineSettings.model_validate({**wishes, "dtype": arguments.dtype})
    settings = ModelSettings(name="bench", source=arguments.model, engine=engine)
    built = build_model(settings, LlmMetrics("bench"))
    assert isinstance(built, ServedSteps)
    print(HEADER)
    for task in TASKS:
        for streams in arguments.streams:
            drafting = Drafting(arguments.drafted)
            line = compare(
                built.stepper.model, task, streams, arguments.tokens, drafting, arguments.rounds
            )
            print(line, flush=True)
    built.stepper.close()


if __name__ == "__main__":
    main()
