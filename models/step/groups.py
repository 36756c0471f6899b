"""Who attends to what in one step: queries in groups, one call each."""

from __future__ import annotations

from collections import abc

import torch
from torch import Tensor

from models.step.placement import Group, Span, blocks_of
from models.step.transfer import to_device

# What one more call a layer costs, in keys gathered and attended to for nothing.
SPLIT_GAIN = 1024
# Keys of one call: on a CPU what is gathered should still be in its cache when attended to.
CPU_KEYS = 2048
NO_LIMIT = 1 << 40
FEWEST = 4  # sequences of one call, so that all cores have work


class Grouping:
    """For queries that each see the last ``window`` keys (None: all)."""

    def __init__(
        self, window: int | None, block_size: int, device: torch.device, dtype: torch.dtype
    ) -> None:
        """``dtype`` of the masks."""
        self._window = window
        self._block_size = block_size
        self._device = device
        self._dtype = dtype

    def of(self, spans: abc.Sequence[Span]) -> abc.Iterator[Group]:
        """In flat order: ``spans`` of one token first, the longest sequence first."""
        singles = [span for span in spans if span.count == 1]
        yield from self._of_singles(singles)
        flat = len(singles)
        for span in spans[flat:]:
            yield self._prefill_group(span, flat)
            flat += span.count

    def _of_singles(self, spans: list[Span]) -> abc.Iterator[Group]:
        size = self._block_size
        firsts = [self._first_block(span) for span in spans]
        widths = [blocks_of(s, size) - first for s, first in zip(spans, firsts, strict=True)]
        most = CPU_KEYS if self._device.type == "cpu" else NO_LIMIT
        for rows in split_by_width(widths, SPLIT_GAIN // size, most // size):
            yield self._decode_group(spans[rows], firsts[rows], rows)

    def _decode_group(self, spans: list[Span], firsts: list[int], rows: slice) -> Group:
        size = self._block_size
        width = max(blocks_of(s, size) - f for s, f in zip(spans, firsts, strict=True))
        table: list[int] = []
        for span, first in zip(spans, firsts, strict=True):
            own = span.blocks[first : blocks_of(span, size)]
            # Padding repeats the sequence's own block: finite values, masked below.
            table += own + own[-1:] * (width - len(own))
        bounds = {self._visible(s, f * size) for s, f in zip(spans, firsts, strict=True)}
        if len(bounds) == 1:
            (keys,) = (slice(*bound) for bound in bounds)
            return Group(rows, len(spans), self._indices(table), keys, None, False)
        mask = self._decode_mask(spans, firsts, width * size)
        return Group(rows, len(spans), self._indices(table), slice(0, width * size), mask, False)

    def _decode_mask(self, spans: list[Span], firsts: list[int], keys: int) -> Tensor:
        size = self._block_size
        bounds = [self._visible(s, f * size) for s, f in zip(spans, firsts, strict=True)]
        low, high = self._indices([b for bound in bounds for b in bound]).view(-1, 2, 1).unbind(1)
        place = torch.arange(keys, device=self._device)
        return self._additive((place >= low) & (place < high))[:, None, None]

    def _prefill_group(self, span: Span, flat: int) -> Group:
        queries = slice(flat, flat + span.count)
        if span.start == 0:
            causal = self._window is None or self._window >= span.count
            mask = None if causal else self._prefill_mask(span, 0)
            return Group(queries, 1, None, slice(0, span.count), mask, causal)
        first = self._first_block(span)
        blocks = self._indices(list(span.blocks[first : blocks_of(span, self._block_size)]))
        low = first * self._block_size
        keys = slice(0, span.start + span.count - low)
        return Group(queries, 1, blocks, keys, self._prefill_mask(span, low), False)

    def _prefill_mask(self, span: Span, low: int) -> Tensor:
        end = span.start + span.count
        query = torch.arange(span.start, end, device=self._device)[:, None]
        key = torch.arange(low, end, device=self._device)
        seen = key <= query
        return self._additive(seen if self._window is None else seen & (key > query - self._window))

    def _additive(self, seen: Tensor) -> Tensor:
        mask = torch.zeros(seen.shape, dtype=self._dtype, device=self._device)
        return mask.masked_fill_(~seen, float("-inf"))

    def _indices(self, values: list[int]) -> Tensor:
        return to_device(values, self._device, torch.int64)

    def _first_block(self, span: Span) -> int:
        """Of those that its first query sees."""
        if self._window is None:
            return 0
        return max(0, span.start + 1 - self._window) // self._block_size

    def _visible(self, span: Span, low: int) -> tuple[int, int]:
        """The keys a single query sees, counted from position ``low``."""
        end = span.start + 1
        first = 0 if self._window is None else max(0, end - self._window)
        return first - low, end - low


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
