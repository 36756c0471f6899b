"""One step through the native stack, behind the interface of ``PagedForward``."""

from __future__ import annotations

from collections import abc
from itertools import accumulate

import torch
from torch import Tensor

from models.step.native.stack import Stack
from models.step.placement import Span


class NativeLayout:
    """Where a step's tokens lie: sequence after sequence, as given."""

    def __init__(self, spans: abc.Sequence[Span]) -> None:
        self.starts = [0, *accumulate(span.count for span in spans)][:-1]
        self.tokens = sum(span.count for span in spans)
        self.order = list(range(len(spans)))
        tables = [0, *accumulate(len(span.blocks) for span in spans)][:-1]
        rows = [
            number
            for flat, span, table in zip(self.starts, spans, tables, strict=True)
            for number in (flat, span.start, span.count, table)
        ]
        blocks = [block for span in spans for block in span.blocks]
        self.spans = self.indices(rows, torch.int32).view(-1, 4)
        self.tables = self.indices(blocks, torch.int32)

    def indices(self, values: list[int], dtype: torch.dtype = torch.int64) -> Tensor:
        return torch.tensor(values, dtype=dtype)

    def send(self, *lists: list[int]) -> list[Tensor]:
        return [self.indices(values) for values in lists]


class NativeForward:
    """The forward pass over the flat tokens of one step, on the stack's threads."""

    def __init__(self, stack: Stack, block_size: int) -> None:
        self._stack = stack
        self.block_size = block_size

    def layout(self, spans: abc.Sequence[Span]) -> NativeLayout:
        return NativeLayout(spans)

    def __call__(self, layout: NativeLayout, ids: Tensor, keep: Tensor) -> Tensor:
        """Logits [len(keep), vocabulary] after the flat tokens ``keep`` of ``ids`` [tokens]."""
        return self._stack.forward(
            ids.to(torch.int32), layout.spans, layout.tables, keep.to(torch.int32)
        )
