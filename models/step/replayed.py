"""Whether replaying recorded decode steps computes what the same steps launched one by one do."""

from __future__ import annotations

import statistics
from collections import abc
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from models.step.graphs import DecodeForward, DecodeGraphs
from models.step.layout import StepLayout
from models.step.model import Capacity
from models.step.placement import Span

MOST_ERROR = 0.05  # of the logits' size: padding may choose other kernels, in half precision
PROMPTS = 2  # different ones, that rows share in turn


class PlacedForward(DecodeForward, Protocol):
    """A ``DecodeForward`` that also makes the layout of any step."""

    def layout(self, spans: abc.Sequence[Span]) -> StepLayout: ...


@dataclass(frozen=True, slots=True)
class Probed:
    """Tokens of a sequence whose ids go on from ``first``."""

    first: int
    start: int
    count: int
    slot: int
    blocks: tuple[int, ...]
    from_slot: bool = False
    adapter: str | None = None

    @property
    def token_ids(self) -> tuple[int, ...]:
        return tuple(self.first + i for i in range(self.start, self.start + self.count))


@torch.inference_mode()
def replay_objection(forward: PlacedForward, graphs: DecodeGraphs, capacity: Capacity) -> str:
    """Empty if all graphs agree with ``forward``. Overwrites blocks: nothing may live in them."""
    prompts = _prompts(capacity)
    for prompt in prompts:
        _launched(forward, [prompt])
    for size in graphs.sizes:
        error = statistics.median(_errors(forward, graphs, _last(prompts, size)))
        if not error <= MOST_ERROR:  # NaN too
            return f"replayed logits of {size} sequences differ by {error:.1e} of their size"
    return ""


def _prompts(capacity: Capacity) -> list[Probed]:
    """Each a token longer than a block, if there is room for it."""
    length = min(capacity.block_size + 1, capacity.max_context, capacity.vocab_size - PROMPTS)
    each = -(-length // capacity.block_size)
    free = range(capacity.blocks - 1, -1, -1)
    return [
        Probed(i, 0, length, i, tuple(free[i * each : (i + 1) * each]))
        for i in range(min(PROMPTS, capacity.blocks // each))
    ]


def _last(prompts: list[Probed], size: int) -> list[Probed]:
    """``size`` rows of the last token of one prompt or another."""
    owners = [prompts[row % len(prompts)] for row in range(size)]
    return [Probed(p.first, p.count - 1, 1, row, p.blocks) for row, p in enumerate(owners)]


def _errors(
    forward: PlacedForward, graphs: DecodeGraphs, rows: list[Probed]
) -> abc.Iterator[float]:
    replayed = graphs.run(rows).logits.double()
    for ours, theirs in zip(replayed, _launched(forward, rows), strict=True):
        yield float((ours - theirs).norm() / theirs.norm().clamp_min(1e-12))


def _launched(forward: PlacedForward, spans: abc.Sequence[Probed]) -> Tensor:
    """Float64 logits after the last token of each."""
    layout = forward.layout(spans)
    flat = [token for index in layout.order for token in spans[index].token_ids]
    ends = [start + span.count - 1 for start, span in zip(layout.starts, spans, strict=True)]
    ids, keep = layout.send(flat, ends)
    return forward(layout, ids, keep).double()
