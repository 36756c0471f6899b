"""Where one step's tokens live: their flat order, their rows of the cache, and whom they see.

Built once a step on the host; every attention layer reads it. Knows nothing of any model.
"""

from __future__ import annotations

from collections import abc
from functools import cached_property

import torch
from torch import Tensor

from models.step.groups import Grouping
from models.step.placement import AdaptedRows, Group, RaggedLayout, Span, blocks_of
from models.step.transfer import to_device, to_device_together


class StepLayout:
    """One step over ``spans``. Flat tokens: single ones first, the longest sequence first."""

    def __init__(
        self,
        spans: abc.Sequence[Span],
        block_size: int,
        device: torch.device,
        dtype: torch.dtype,
        *,
        varlen: bool = False,
    ) -> None:
        """``varlen``: whether attention will ask for ``ragged``."""
        self.block_size = block_size
        self.device = device
        self.dtype = dtype
        self._varlen = varlen
        order = sorted(range(len(spans)), key=lambda i: _rank(spans[i]))
        self._spans = [spans[i] for i in order]
        self.starts = self._flat_starts(order)
        self._groups: dict[int | None, tuple[Group, ...]] = {}

    def _flat_starts(self, order: list[int]) -> list[int]:
        """The first flat token of each span, in the order the spans were given."""
        starts, flat = [0] * len(order), 0
        for i, span in zip(order, self._spans, strict=True):
            starts[i] = flat
            flat += span.count
        self.tokens = flat
        return starts

    @cached_property
    def order(self) -> list[int]:
        """The given spans' indices, in flat order."""
        return sorted(range(len(self.starts)), key=self.starts.__getitem__)

    @cached_property
    def positions(self) -> Tensor:
        """int64 [tokens]: each flat token's place in its sequence."""
        return self.indices(self._position_list())

    @cached_property
    def cache_rows(self) -> Tensor:
        """int64 [tokens]: each flat token's row in a cache seen as [blocks * block_size, ...]."""
        return self.indices(self._row_list())

    @cached_property
    def adapted(self) -> list[AdaptedRows]:
        """The flat tokens of each adapter."""
        owners = [span.adapter for span in self._spans for _ in range(span.count)]
        names = dict.fromkeys(owner for owner in owners if owner is not None)
        if len(names) == 1 and None not in owners:
            return [AdaptedRows(name, None) for name in names]
        places = {name: [i for i, owner in enumerate(owners) if owner == name] for name in names}
        return [AdaptedRows(name, self.indices(rows)) for name, rows in places.items()]

    def _position_list(self) -> list[int]:
        return [p for span in self._spans for p in _positions(span)]

    def _row_list(self) -> list[int]:
        size = self.block_size
        return [
            span.blocks[p // size] * size + p % size
            for span in self._spans
            for p in _positions(span)
        ]

    def send(self, *lists: list[int]) -> list[Tensor]:
        """``indices`` of each list; on CUDA one copy brings them and all that attention asks."""
        if self.device.type != "cuda":
            return [self.indices(values) for values in lists]
        own = [*lists, self._position_list(), self._row_list()]
        parts = [(values, torch.int64) for values in own]
        tables = self._ragged_lists() if self._varlen else []
        parts += [(values, torch.int32) for values in tables]
        tensors = to_device_together(parts, self.device)
        self.positions, self.cache_rows, *ragged = tensors[len(lists) :]
        if ragged:
            self.ragged = self._ragged_of(ragged)
        return tensors[: len(lists)]

    def groups(self, window: int | None) -> tuple[Group, ...]:
        """All queries of the step, where each sees the last ``window`` keys (None: all)."""
        if window not in self._groups:
            grouping = Grouping(window, self.block_size, self.device, self.dtype)
            self._groups[window] = tuple(grouping.of(self._spans))
        return self._groups[window]

    def indices(self, values: list[int], dtype: torch.dtype = torch.int64) -> Tensor:
        """A tensor of ``values`` on the device, without waiting for it."""
        return to_device(values, self.device, dtype)

    @cached_property
    def ragged(self) -> RaggedLayout:
        """The step for kernels that take block tables and lengths themselves."""
        return self._ragged_of([self.indices(v, torch.int32) for v in self._ragged_lists()])

    def _ragged_lists(self) -> list[list[int]]:
        """Query starts, key counts and the block table, flat."""
        starts = [0]
        table: list[int] = []
        for span in self._spans:
            starts.append(starts[-1] + span.count)
            own = span.blocks[: blocks_of(span, self.block_size)]
            table += own + own[-1:] * (self._width - len(own))
        return [starts, [span.start + span.count for span in self._spans], table]

    def _ragged_of(self, tensors: abc.Sequence[Tensor]) -> RaggedLayout:
        starts, ends, table = tensors
        return RaggedLayout(
            starts,
            ends,
            table.view(-1, self._width),
            max(span.count for span in self._spans),
            max(span.start + span.count for span in self._spans),
        )

    @cached_property
    def _width(self) -> int:
        return max(blocks_of(span, self.block_size) for span in self._spans)


def _rank(span: Span) -> tuple[bool, int]:
    return span.count > 1, -span.start if span.count == 1 else 0


def _positions(span: Span) -> range:
    return range(span.start, span.start + span.count)
