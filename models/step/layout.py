"""Where one step's tokens live: flat order, cache rows, and who attends to what.

Built once a step on the host; every attention layer reads it. Knows nothing of any model.
"""

from __future__ import annotations

from collections import abc
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import torch
from torch import Tensor

from models.step.transfer import to_device

# What one more call a layer costs, in keys gathered and attended to for nothing.
SPLIT_GAIN = 1024
# Keys of one call: on a CPU what is gathered should still be in its cache when attended to.
CPU_KEYS = 2048
NO_LIMIT = 1 << 40
FEWEST = 4  # sequences of one call, so that all cores have work


class Span(Protocol):
    """Tokens ``[start, start + count)`` of one sequence; ``blocks`` cover all up to their end."""

    @property
    def start(self) -> int: ...
    @property
    def count(self) -> int: ...
    @property
    def blocks(self) -> tuple[int, ...]: ...


@dataclass(frozen=True, slots=True)
class Group:
    """Queries that attend in one call: one each of several sequences, or many of one."""

    queries: slice  # of the step's flat tokens
    sequences: int
    blocks: Tensor | None  # [sequences * n] to gather; None: the step's own keys are all there is
    keys: slice  # of the positions gathered
    mask: Tensor | None  # added to the scores: [sequences, 1, 1, keys] or [queries, keys]
    causal: bool  # query i sees keys up to i, and there is no mask


@dataclass(frozen=True, slots=True)
class RaggedLayout:
    """The same as cumulative lengths and one block table, for variable-length kernels."""

    query_starts: Tensor  # int32 [sequences + 1]
    key_counts: Tensor  # int32 [sequences]
    block_table: Tensor  # int32 [sequences, most blocks]
    max_queries: int
    max_keys: int


class StepLayout:
    """One step over ``spans``. Flat tokens: single ones first, the longest sequence first."""

    def __init__(
        self,
        spans: abc.Sequence[Span],
        block_size: int,
        device: torch.device,
        dtype: torch.dtype,
    ) -> None:
        self.block_size = block_size
        self.device = device
        self.dtype = dtype
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
        return self.indices([p for span in self._spans for p in _positions(span)])

    @cached_property
    def cache_rows(self) -> Tensor:
        """int64 [tokens]: each flat token's row in a cache seen as [blocks * block_size, ...]."""
        size = self.block_size
        return self.indices(
            [
                span.blocks[p // size] * size + p % size
                for span in self._spans
                for p in _positions(span)
            ]
        )

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
        starts, ends = [0], []
        for span in self._spans:
            starts.append(starts[-1] + span.count)
            ends.append(span.start + span.count)
        width = max(_blocks_of(span, self.block_size) for span in self._spans)
        table: list[int] = []
        for span in self._spans:
            own = span.blocks[: _blocks_of(span, self.block_size)]
            table += own + own[-1:] * (width - len(own))
        return RaggedLayout(
            self.indices(starts, torch.int32),
            self.indices(ends, torch.int32),
            self.indices(table, torch.int32).view(-1, width),
            max(span.count for span in self._spans),
            max(ends),
        )


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
