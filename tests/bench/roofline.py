"""How near a model comes to what its device can do: memory read at decoding, products at prefill.

``python -m tests.bench.roofline`` prints a Markdown table, for a model of Llama 3.2 1B's shape with
random weights. The device's own rates are measured in the same run: a large copy, and a product of
large matrices. Steps are planned, launched and read as a replica does it.
"""

from __future__ import annotations

import argparse
import asyncio
import time
from collections import abc
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile
from transformers import AutoModelForCausalLM, LlamaConfig, PreTrainedModel

from configs.settings import EngineSettings
from models.build import wishes_of
from models.metrics import LlmMetrics
from models.request import SamplingParams
from models.schedule.sequence import Sequence
from models.step.assemble import assemble
from models.step.model import StepModel
from models.step.place import device_name, device_of, precision_of, set_threads
from models.stepper import Stepper
from tests.bench.work import Weights, Work, bytes_read, flops, weights_of

SHAPES: dict[str, dict[str, Any]] = {
    "1b": {
        "vocab_size": 128256,
        "hidden_size": 2048,
        "intermediate_size": 8192,
        "num_hidden_layers": 16,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
    },
    "small": {
        "vocab_size": 512,
        "hidden_size": 64,
        "intermediate_size": 128,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
    },
}
DTYPES = ("float32", "bfloat16", "float16")
HEADER = """\
| work | ms a step | tokens/s | reached | of the device's | idle between kernels |
|---|---|---|---|---|---|"""


STEP_TOKENS = 8192
UNHURRIED_S = 60.0  # prompts need not wait for those who decode: nobody reads the answers
SPARE = 64  # tokens that a sequence may be ahead by, while others are still in prefill


@dataclass(frozen=True)
class Rates:
    """What the device does when it does nothing else."""

    bytes_s: float  # read and written by a copy
    flops_s: float


@dataclass(frozen=True)
class Result:
    work: Work
    seconds: float  # of one step
    idle: float | None  # share of the time in which no kernel ran; None: not on this device


def build(shape: str, device: torch.device, dtype: torch.dtype) -> PreTrainedModel:
    torch.manual_seed(0)
    config = LlamaConfig(max_position_embeddings=8192, tie_word_embeddings=True, **SHAPES[shape])
    with torch.device(device):
        model: PreTrainedModel = AutoModelForCausalLM.from_config(  # type: ignore[no-untyped-call]
            config, dtype=dtype
        )
    model.train(False)
    return model


def rates(device: torch.device, dtype: torch.dtype, *, mib: int, side: int) -> Rates:
    """Of copying ``mib`` MiB, and of multiplying matrices of ``side`` squared; the best of ten."""
    source = torch.ones(mib << 20, dtype=torch.uint8, device=device)
    target = torch.empty_like(source)
    left = torch.randn(side, side, dtype=dtype, device=device)
    copied = min(_timed(lambda: target.copy_(source), device) for _ in range(10))
    multiplied = min(_timed(lambda: left @ left, device) for _ in range(10))
    return Rates(2 * (mib << 20) / copied, 2 * side**3 / multiplied)


def measure(model: StepModel, work: Work) -> Result:
    return asyncio.run(_measure(model, work))


async def _measure(model: StepModel, work: Work) -> Result:
    tokens = max(STEP_TOKENS, work.batch, work.context)
    stepper = Stepper(model, step_tokens=tokens, step_s=UNHURRIED_S, metrics=LlmMetrics("roofline"))
    try:
        await _run(stepper, Work(work.batch, work.context, 2))  # warms up
        seconds = await _run(stepper, work)
        if not model.launch_ahead:
            return Result(work, seconds, None)
        profiled = profile(activities=[ProfilerActivity.CUDA])
        await _run(stepper, work, profiled)
        return Result(work, seconds, 1 - _busy(profiled, work) / seconds)
    finally:
        stepper.close()


async def _run(
    stepper: Stepper, work: Work, timed: AbstractContextManager[object] | None = None
) -> float:
    """Seconds of a step, or of the whole prefill; all sequences are gone at the end."""
    sequences = [_sequence(i, work) for i in range(work.batch)]
    for sequence in sequences:
        stepper.add(sequence)
    if work.steps:
        await _prefilled(stepper, sequences)
    with timed or nullcontext():
        started = time.perf_counter()
        for _ in range(work.steps):
            await stepper.step(sequences)
        await _prefilled(stepper, sequences)
        seconds = (time.perf_counter() - started) / max(1, work.steps)
    early = sum(sequence.ended for sequence in sequences)
    for sequence in sequences:
        stepper.remove(sequence)
    await stepper.step([])  # what was launched ahead for them overlaps with nothing
    if stepper.failure or early:
        raise RuntimeError(stepper.failure or f"{early} sequences ended before the last step")
    return seconds


async def _prefilled(stepper: Stepper, sequences: list[Sequence]) -> None:
    while any(not sequence.generated for sequence in sequences) and not stepper.failure:
        await stepper.step(sequences)


def _busy(profiled: profile, work: Work) -> float:
    """Seconds of a step in which some kernel ran."""
    events: list[Any] = profiled.events() or []  # type: ignore[no-untyped-call]
    cuda = [e.time_range for e in events if e.device_type.name == "CUDA"]
    return covered((span.start, span.end) for span in cuda) / 1e6 / max(1, work.steps)


def covered(spans: abc.Iterable[tuple[float, float]]) -> float:
    """The length of the union of intervals."""
    total, reached = 0.0, float("-inf")
    for start, end in sorted(spans):
        total += max(0.0, end - max(start, reached))
        reached = max(reached, end)
    return total


def _sequence(index: int, work: Work) -> Sequence:
    tokens = [3 + (index + position) % 200 for position in range(work.context)]
    greedy = SamplingParams(temperature=0)
    return Sequence(
        str(index), tokens, greedy, frozenset(), work.context + work.steps + SPARE, index
    )


def _timed(run: abc.Callable[[], object], device: torch.device) -> float:
    if device.type == "cuda":
        torch.cuda.synchronize()
    started = time.perf_counter()
    run()
    if device.type == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter() - started


def row(weights: Weights, result: Result, device: Rates) -> str:
    work, seconds = result.work, result.seconds
    if work.steps:
        name, tokens = f"decode, batch {work.batch}, {work.context} tokens each", work.batch
        reached, peak, unit = bytes_read(weights, work) / seconds, device.bytes_s, "GB/s"
    else:
        name, tokens = f"prefill, {work.batch} x {work.context} tokens", work.batch * work.context
        reached, peak, unit = flops(weights, work) / seconds, device.flops_s, "GFLOP/s"
    idle = "" if result.idle is None else f"{result.idle:.1%}"
    cells = [name, f"{seconds * 1e3:.2f}", f"{tokens / seconds:.0f}", f"{reached / 1e9:.0f} {unit}"]
    return f"| {' | '.join([*cells, f'{reached / peak:.0%}', idle])} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--shape", choices=SHAPES, default="1b")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--dtype", choices=["auto", *DTYPES], default="auto")
    parser.add_argument("--batches", type=int, nargs="+", default=[1, 64])
    parser.add_argument("--context", type=int, default=512, help="tokens of a sequence")
    parser.add_argument("--prompt", type=int, default=2048, help="tokens of a prefill")
    parser.add_argument("--steps", type=int, default=100)
    arguments = parser.parse_args()
    device, _ = device_of(arguments.device)
    dtype = precision_of(arguments.dtype, device).dtype
    if device.type == "cpu":
        set_threads(None)
    report(arguments, device, dtype)


def report(arguments: argparse.Namespace, device: torch.device, dtype: torch.dtype) -> None:
    large = device.type == "cuda"
    peaks = rates(device, dtype, mib=2048 if large else 128, side=8192 if large else 1024)
    model = build(arguments.shape, device, dtype)
    longest = max(arguments.context + arguments.steps, arguments.prompt) + SPARE
    settings = EngineSettings(
        max_running=max(arguments.batches),
        max_context=longest,
        prefix_cache=False,
        step_tokens=max(STEP_TOKENS, longest),
    )
    facts = {"device": device_name(device), "dtype": str(dtype)}
    weights = weights_of(model)
    served = assemble(model, wishes_of(settings), facts)
    for name, fact in served.describe().items():
        print(f"{name}: {fact}")
    print(f"copy: {peaks.bytes_s / 1e9:.0f} GB/s; product: {peaks.flops_s / 1e9:.0f} GFLOP/s\n")
    print(HEADER)
    works = [Work(batch, arguments.context, arguments.steps) for batch in arguments.batches]
    for work in [*works, Work(1, arguments.prompt, 0)]:
        print(row(weights, measure(served, work), peaks), flush=True)


if __name__ == "__main__":
    main()
