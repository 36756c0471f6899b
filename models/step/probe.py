"""Whether a model computes with paged attention what it computes with its own.

Architectures claim support they do not have, and then are silently wrong. Two short sequences, in
uneven chunks that share steps and lie in scattered blocks, must give the eager logits.
"""

from __future__ import annotations

from collections import abc
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence
from transformers import PreTrainedModel

from models.step.adapting import Adapting
from models.step.ordinary import ordinary_ids
from models.step.paged import Forward
from models.step.placement import AdaptedRows
from models.step.widen import computed_in

EAGER = "eager"
LENGTHS = (24, 7)
STEPS = (((0, 0, 9),), ((0, 9, 14), (1, 0, 5)), ((1, 5, 1), (0, 23, 1)), ((1, 6, 1),))
MOST_ERROR = {torch.float32: 1e-4, torch.float64: 1e-4}
MOST_HALF_ERROR = 0.05


@dataclass(frozen=True, slots=True)
class ProbeSpan:
    """A chunk of a probed sequence."""

    start: int
    count: int
    blocks: tuple[int, ...]
    adapter: str | None = None


def blocks_needed(block_size: int) -> int:
    """The least pool that the probe can run in."""
    return sum(-(-length // block_size) for length in LENGTHS)


class Probe:
    """The sequences, and what the model itself says of them: asked once, when it is needed.

    The first goes through the ``adapter``, if there is one, and the other does not.
    """

    def __init__(
        self, model: PreTrainedModel, adapting: Adapting | None = None, adapter: str | None = None
    ) -> None:
        self._model = model
        self._adapting = adapting or Adapting(model, ())
        self._adapters = (adapter, None)

    def anew(self) -> Probe:
        """One that asks the model again."""
        return Probe(self._model, self._adapting, self._adapters[0])

    @torch.inference_mode()
    def disagreement(
        self, forward: Forward[Any], block_size: int, rounded: float | None = None
    ) -> str:
        """Empty if paged logits are the eager ones, else how far apart they are.

        ``rounded`` is the relative error that may be usual, where more is rounded than in the
        model.
        """
        theirs = self._eager  # before ours: what it leaves behind must not disturb them
        ours = self._paged(forward, _scatter(block_size))
        errors = [
            torch.cat([_relative_error(ours[s][seq], theirs[seq][a : a + n]) for seq, a, n in step])
            for s, step in enumerate(STEPS)
        ]
        error = _verdict(errors, computed_in(self._model), rounded)
        by = f" by adapter {self._adapters[0]!r}" if self._adapters[0] is not None else ""
        return error and f"its paged logits{by} differ from eager ones {error}"

    @cached_property
    def _ids(self) -> list[Tensor]:
        vocab_size = self._model.config.get_text_config(decoder=True).vocab_size
        return [ids.to(self._model.device) for ids in ordinary_ids(vocab_size, LENGTHS)]

    @cached_property
    def _eager(self) -> list[Tensor]:
        """In one pass: what fills up the shorter one comes behind it, where it changes nothing."""
        ids = pad_sequence(self._ids, batch_first=True)
        first = torch.arange(ids.shape[1], device=ids.device)
        adapted = [AdaptedRows(name, first) for name in self._adapters if name is not None]
        with attention_of(self._model, EAGER), self._adapting.of(adapted, ids.numel()):
            output = self._model(input_ids=ids, position_ids=first.expand_as(ids), use_cache=False)
        return [logits[:n] for logits, n in zip(output.logits, LENGTHS, strict=True)]

    def _paged(
        self, forward: Forward[Any], tables: list[tuple[int, ...]]
    ) -> list[dict[int, Tensor]]:
        """For each step, the logits of each of its sequences' tokens."""
        results = []
        for step in STEPS:
            spans = [ProbeSpan(at, n, tables[seq], self._adapters[seq]) for seq, at, n in step]
            layout = forward.layout(spans)
            flat = torch.cat([_chunk(self._ids, step[i]) for i in layout.order])
            # The last first: whoever computes all of them, whatever was asked for, is found out.
            every = torch.arange(layout.tokens, device=flat.device)
            logits = forward(layout, flat, every.flip(0)).flip(0)
            starts = layout.starts
            results.append(
                {seq: logits[at : at + n] for at, (seq, _, n) in zip(starts, step, strict=True)}
            )
        return results


@contextmanager
def attention_of(model: PreTrainedModel, name: str) -> abc.Iterator[None]:
    """Within it, the model attends by ``name``; the weights are the same."""
    # A wrapper's own may stay what it was while its text model is told another.
    before = model.config.get_text_config(decoder=True)._attn_implementation
    model.set_attn_implementation(name)
    try:
        yield
    finally:
        model.set_attn_implementation(before)


def _scatter(block_size: int) -> list[tuple[int, ...]]:
    """Blocks for each sequence, falling and interleaved."""
    free = list(range(blocks_needed(block_size)))
    tables = []
    for length in LENGTHS:
        count = -(-length // block_size)
        tables.append(tuple(reversed(free[::2] + free[1::2]))[:count])
        free = [block for block in free if block not in tables[-1]]
    return tables


def _chunk(ids: list[Tensor], chunk: tuple[int, int, int]) -> Tensor:
    sequence, start, count = chunk
    return ids[sequence][start : start + count]


def _relative_error(ours: Tensor, theirs: Tensor) -> Tensor:
    """Of each row, apart from what is added to all its logits, which changes nothing."""
    ours, theirs = ours.double(), theirs.double()
    ours, theirs = ours - ours.mean(-1, True), theirs - theirs.mean(-1, True)
    error: Tensor = (ours - theirs).norm(dim=-1) / theirs.norm(dim=-1).clamp_min(1e-12)
    return error


def _verdict(errors: list[Tensor], dtype: torch.dtype, rounded: float | None) -> str:
    """Half precision may send single tokens to other experts: the median of each step counts."""
    exact = dtype in MOST_ERROR and rounded is None
    worst = max(float(e.max() if exact else e.median()) for e in errors)
    allowed = rounded or MOST_ERROR.get(dtype, MOST_HALF_ERROR)
    if worst <= allowed:  # false for NaN too
        return ""
    return f"by {worst:.1e} of their size"
