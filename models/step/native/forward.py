"""One step through the native stack, behind the interface of ``PagedForward``."""

from __future__ import annotations

from collections import abc
from itertools import accumulate, chain

import torch
from torch import Tensor

from models.step.native.stack import Stack
from models.step.placement import Span
from models.step.transfer import on_host


class NativeLayout:
    """Where a step's tokens lie: sequence after sequence, as given."""

    def __init__(self, spans: abc.Sequence[Span]) -> None:
        counts = [span.count for span in spans]
        tables = [span.blocks for span in spans]
        self.starts = [0, *accumulate(counts)]
        self.tokens = self.starts.pop()
        places = accumulate(map(len, tables[:-1]), initial=0)
        rows = zip(self.starts, [span.start for span in spans], counts, places, strict=True)
        self.spans = on_host([*chain.from_iterable(rows)], torch.int32).view(-1, 4)
        self.tables = on_host([*chain.from_iterable(tables)], torch.int32)

    @property
    def order(self) -> list[int]:
        return [*range(len(self.starts))]

    def indices(self, values: list[int], dtype: torch.dtype = torch.int64) -> Tensor:
        return on_host(values, dtype)

    def send(self, *lists: list[int]) -> list[Tensor]:
        return [on_host(values) for values in lists]


class NativeForward:
    """The forward pass over the flat tokens of one step, on the stack's threads."""

    def __init__(self, stack: Stack, block_size: int) -> None:
        self._stack = stack
        self.block_size = block_size

    def layout(self, spans: abc.Sequence[Span]) -> NativeLayout:
        return NativeLayout(spans)

    def __call__(self, layout: NativeLayout, ids: Tensor, keep: Tensor) -> Tensor:
        """Logits [len(keep), vocabulary] after the flat tokens ``keep`` of ``ids`` [tokens]."""
        return self._stack.forward(ids, layout.spans, layout.tables, keep)
