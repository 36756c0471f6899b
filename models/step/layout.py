"""Where one step's tokens live: flat order, cache rows, and who attends to what.

Built once a step on the host; every attention layer reads it. Knows nothing of any model.
"""

from __future__ import annotations

from collections import abc
from functools import cached_property

import torch
from torch import Tensor

from models.step.placement import Group, RaggedLayout, Span
from models.step.transfer import to_device, to_device_together

# What one more call a layer costs, in keys gathered and attended to for nothing.
SPLIT_GAIN = 1024
# Keys of one call: on a CPU what is gathered should still be in its cache when attended to.
CPU_KEYS = 2048
NO_LIMIT = 1 << 40
FEWEST = 4  # sequences of one call, so that all cores have work


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
        self._singles = sum(span.count == 1 for span in spans)
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
            self._groups[window] = tuple(self._build_groups(window))
        return self._groups[window]

    def indices(self, values: list[int], dtype: torch.dtype = torch.int64) -> Tensor:
        """A tensor of ``values`` on the device, without waiting for it."""
        return to_device(values, self.device, dtype)

    def _build_groups(self, window: int | None) -> abc.Iterator[Group]:
        singles = self._spans[: self._singles]
        firsts = [_first_block(span, window, self.block_size) for span in singles]
        widths = [
            _blocks_of(span, self.block_size) - first
            for span, first in zip(singles, firsts, strict=True)
        ]
        most = CPU_KEYS if self.device.type == "cpu" else NO_LIMIT
        gain = SPLIT_GAIN // self.block_size
        for rows in split_by_width(widths, gain, most // self.block_size):
            yield self._decode_group(singles[rows], firsts[rows], rows, window)
        flat = self._singles
        for span in self._spans[self._singles :]:
            yield self._prefill_group(span, flat, window)
            flat += span.count

    def _decode_group(
        self, spans: list[Span], firsts: list[int], rows: slice, window: int | None
    ) -> Group:
        size = self.block_size
        width = max(_blocks_of(s, size) - f for s, f in zip(spans, firsts, strict=True))
        table: list[int] = []
        for span, first in zip(spans, firsts, strict=True):
            own = span.blocks[first : _blocks_of(span, size)]
            # Padding repeats the sequence's own block: finite values, masked below.
            table += own + own[-1:] * (width - len(own))
        bounds = {_visible(s, window, f * size) for s, f in zip(spans, firsts, strict=True)}
        if len(bounds) == 1:
            (keys,) = (slice(*bound) for bound in bounds)
            return Group(rows, len(spans), self.indices(table), keys, None, False)
        mask = self._decode_mask(spans, firsts, width * size, window)
        return Group(rows, len(spans), self.indices(table), slice(0, width * size), mask, False)

    def _decode_mask(
        self, spans: list[Span], firsts: list[int], keys: int, window: int | None
    ) -> Tensor:
        size = self.block_size
        bounds = [_visible(s, window, f * size) for s, f in zip(spans, firsts, strict=True)]
        low, high = self.indices([b for bound in bounds for b in bound]).view(-1, 2, 1).unbind(1)
        place = torch.arange(keys, device=self.device)
        return self._additive((place >= low) & (place < high))[:, None, None]

    def _prefill_group(self, span: Span, flat: int, window: int | None) -> Group:
        queries = slice(flat, flat + span.count)
        if span.start == 0:
            causal = window is None or window >= span.count
            mask = None if causal else self._prefill_mask(span, 0, window)
            return Group(queries, 1, None, slice(0, span.count), mask, causal)
        first = _first_block(span, window, self.block_size)
        blocks = self.indices(list(span.blocks[first : _blocks_of(span, self.block_size)]))
        low = first * self.block_size
        keys = slice(0, span.start + span.count - low)
        return Group(queries, 1, blocks, keys, self._prefill_mask(span, low, window), False)

    def _prefill_mask(self, span: Span, low: int, window: int | None) -> Tensor:
        end = span.start + span.count
        query = torch.arange(span.start, end, device=self.device)[:, None]
        key = torch.arange(low, end, device=self.device)
        seen = key <= query
        return self._additive(seen if window is None else seen & (key > query - window))

    def _additive(self, seen: Tensor) -> Tensor:
        mask = torch.zeros(seen.shape, dtype=self.dtype, device=self.device)
        return mask.masked_fill_(~seen, float("-inf"))

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
            own = span.blocks[: _blocks_of(span, self.block_size)]
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
        return max(_blocks_of(span, self.block_size) for span in self._spans)


def split_by_width(widths: list[int], gain: int, most: int) -> list[slice]:
    """Cuts falling ``widths`` where padding to the widest would waste more than ``gain`` a cut.

    No part is wider than ``most`` in all, unless it would be left with fewer than ``FEWEST``.
    """
    cuts, start = [], 0
    while start < len(widths):
        stop = min(len(widths), start + max(FEWEST, most // widths[start]))
        saved = [(stop - i) * (widths[start] - widths[i]) for i in range(start, stop)]
        best = max(range(len(saved)), key=saved.__getitem__)
        end = start + best if saved[best] > gain else stop
        cuts.append(slice(start, end))
        start = end
    return cuts


def _rank(span: Span) -> tuple[bool, int]:
    return span.count > 1, -span.start if span.count == 1 else 0


def _positions(span: Span) -> range:
    return range(span.start, span.start + span.count)


def _blocks_of(span: Span, size: int) -> int:
    return -(-(span.start + span.count) // size)


def _first_block(span: Span, window: int | None, size: int) -> int:
    return 0 if window is None else max(0, span.start + 1 - window) // size


def _visible(span: Span, window: int | None, low: int) -> tuple[int, int]:
    """The keys a single query sees, counted from position ``low``."""
    end = span.start + 1
    return (0 if window is None else max(0, end - window)) - low, end - low
