"""One step through the native stack, behind the interface of ``PagedForward``."""

from __future__ import annotations

from collections import abc
from itertools import accumulate, chain

import torch
from torch import Tensor

from models.step.native.stack import Stack
from models.step.placement import Span
from models.step.transfer import on_host

NO_ADAPTERS: abc.Mapping[str | None, int] = {None: -1}


class NativeLayout:
    """Where a step's tokens lie: sequence after sequence, those of an adapter together."""

    def __init__(
        self, given: abc.Sequence[Span], places: abc.Mapping[str | None, int] = NO_ADAPTERS
    ) -> None:
        """``places`` are the library's numbers of adapters."""
        owners = [places[span.adapter] for span in given]
        self.order = sorted(range(len(given)), key=owners.__getitem__)
        spans = [given[i] for i in self.order]
        counts = [span.count for span in spans]
        tables = [span.blocks for span in spans]
        flat = [0, *accumulate(counts)]
        self.tokens = flat.pop()
        first = accumulate(map(len, tables[:-1]), initial=0)
        rows = zip(flat, [span.start for span in spans], counts, first, strict=True)
        self.spans = on_host([*chain.from_iterable(rows)], torch.int32).view(-1, 4)
        self.adapters = on_host(sorted(owners), torch.int32)
        self.tables = on_host([*chain.from_iterable(tables)], torch.int32)
        self.starts = [start for _, start in sorted(zip(self.order, flat, strict=True))]

    def indices(self, values: list[int], dtype: torch.dtype = torch.int64) -> Tensor:
        return on_host(values, dtype)

    def send(self, *lists: list[int]) -> list[Tensor]:
        return [on_host(values) for values in lists]


class NativeForward:
    """The forward pass over the flat tokens of one step, on the stack's threads."""

    def __init__(
        self,
        stack: Stack,
        block_size: int,
        places: abc.Mapping[str | None, int] = NO_ADAPTERS,
    ) -> None:
        self._stack = stack
        self._places = places
        self.block_size = block_size

    def layout(self, spans: abc.Sequence[Span]) -> NativeLayout:
        return NativeLayout(spans, self._places)

    def __call__(self, layout: NativeLayout, ids: Tensor, keep: Tensor) -> Tensor:
        """Logits [len(keep), vocabulary] after the flat tokens ``keep`` of ``ids`` [tokens]."""
        return self._stack.forward(ids, layout.spans, layout.adapters, layout.tables, keep)
