"""What sampling costs: ``python -m tests.bench.sampling`` prints a Markdown table.

Microseconds of a step's sampling and scoring for so many rows, by the compiled kernels beside one
thread of torch's, as they are served, and by torch's operators; the best of several calls. Logits
are those of a language model: a few likely tokens over a long tail.
"""

from __future__ import annotations

import argparse
import time
from collections import abc
from typing import Any

import torch
from torch import Tensor

from models.request import SamplingParams
from models.schedule.sequence import Chunk, Sequence
from models.step.native.rows import RowKernels, row_kernels
from models.step.sampler import Sampler
from models.step.scores import Scoring

CPU = torch.device("cpu")
VOCAB = 49_152
HISTORY = 256  # tokens of each sequence
ROWS = (1, 8, 32, 128)
BIAS = {token * 6: 1.0 for token in range(300)}
KINDS: dict[str, dict[str, Any]] = {
    "greedy": {"temperature": 0},
    "temperature": {"temperature": 0.8},
    "top_k 50": {"top_k": 50},
    "top_p 0.9": {"top_p": 0.9},
    "top_p 0.95": {"top_p": 0.95},
    "min_p 0.05": {"min_p": 0.05},
    "top_p, top_k, temperature": {"temperature": 0.7, "top_p": 0.9, "top_k": 40},
    "greedy, penalties": {
        "temperature": 0,
        "presence_penalty": 0.5,
        "frequency_penalty": 0.5,
        "repetition_penalty": 1.1,
    },
    "greedy, logit_bias of 300": {"temperature": 0, "logit_bias": BIAS},
    "greedy, logprobs 0": {"temperature": 0, "logprobs": 0},
    "greedy, logprobs 5": {"temperature": 0, "logprobs": 5},
    "greedy, logprobs 20": {"temperature": 0, "logprobs": 20},
}
Timed = abc.Callable[[], None]
COLUMNS = (f"{count} row{'s' * (count > 1)}, µs" for count in ROWS)
HEADER = f"| sampling | by | {' | '.join(COLUMNS)} |\n|{'---|' * 6}"


def logits(rows: int, vocab: int) -> Tensor:
    generator = torch.Generator().manual_seed(0)
    values = torch.randn(rows, vocab, generator=generator) * 2.5
    likely = torch.randint(0, vocab, (rows, 30), generator=generator)
    return values.scatter_add(1, likely, torch.rand(rows, 30, generator=generator) * 14)


def step_of(wishes: dict[str, Any], values: Tensor, kernels: RowKernels | None) -> Timed:
    """One step's sampling, over sequences whose history is known."""
    wish, vocab = SamplingParams(**wishes), values.shape[1]
    sampler = Sampler(len(values), vocab, CPU, kernels)
    history = tuple(token % vocab for token in range(1, HISTORY * 7, 7))
    first = [_chunk(wish, slot, 0, HISTORY, history) for slot in range(len(values))]
    starts = [slot * HISTORY for slot in range(len(values))]
    sampler.observe(first, starts, torch.tensor(history * len(values)))
    chunks = [_chunk(wish, slot, HISTORY, 1, None) for slot in range(len(values))]
    ids = torch.zeros(len(values), dtype=torch.int64)

    def step() -> None:
        sampler.observe(chunks, range(len(chunks)), ids)
        scoring = Scoring(chunks, values, values[:0], kernels)
        tokens = sampler.sample(values, chunks)
        scored = scoring.scored(tokens)
        tokens.tolist()
        if scored is not None:
            scored.read()

    return step


def _chunk(
    wish: SamplingParams, slot: int, start: int, count: int, history: tuple[int, ...] | None
) -> Chunk:
    owner = Sequence("bench", [0] * (HISTORY // 2), wish, frozenset(), 10**6, seed=slot)
    return Chunk(owner, start, count, True, (0,) * count, False, slot, (), history)


def best_us(step: Timed, calls: int) -> float:
    times = []
    for _ in range(calls + 1):
        started = time.perf_counter()
        step()
        times.append(time.perf_counter() - started)
    return min(times[1:]) * 1e6


def table(rows: abc.Sequence[int], vocab: int, calls: int) -> abc.Iterator[str]:
    values = logits(max(rows), vocab)
    threads = torch.get_num_threads()
    ways: dict[str, tuple[RowKernels | None, int]] = {"torch": (None, threads)}
    if kernels := row_kernels(CPU):
        ways = {"kernels": (kernels, 1), **ways}
    for name, wishes in KINDS.items():
        for by, (chosen, beside) in ways.items():
            torch.set_num_threads(beside)
            spent = [best_us(step_of(wishes, values[:n].clone(), chosen), calls) for n in rows]
            yield f"| {name} | {by} | {' | '.join(f'{us:.0f}' for us in spent)} |"
    torch.set_num_threads(threads)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.sampling", description=__doc__)
    parser.add_argument("--calls", type=int, default=12)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    chosen = parser.parse_args()
    torch.set_num_threads(chosen.threads)
    print(HEADER)
    for line in table(ROWS, VOCAB, chosen.calls):
        print(line, flush=True)


if __name__ == "__main__":
    main()
