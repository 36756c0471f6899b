"""Decode steps as recorded graphs: a step in which every sequence computes one token.

Steps are padded to one of a few counts of sequences. What differs between steps is in tensors that
stay where they are: a step's inputs, and the block table of every slot. Padding has a slot and a
block of its own, which no sequence ever holds.
"""

from __future__ import annotations

import logging
import time
from collections import abc
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from models.schedule.sequence import Chunk
from models.step.capture import Capture, Replay
from models.step.model import Capacity
from models.step.placement import AdaptedRows, Group, Placement, RaggedLayout
from models.step.transfer import staged, to_device_together
from models.step.waits import WithoutWaiting

logger = logging.getLogger("stepserve")

RECORD_S = 120.0  # after so long, what is not yet recorded is left out
ON_DEVICE = -1  # in the place of a token that was sampled last for its slot


class DecodeForward(Protocol):
    """The model over the flat tokens of one step, as far as decoding in graphs needs it."""

    block_size: int

    def __call__(self, layout: Placement, ids: Tensor, keep: Tensor) -> Tensor: ...


class Single(Protocol):
    """One more token of a sequence; ``blocks`` cover it."""

    @property
    def start(self) -> int: ...
    @property
    def token_ids(self) -> tuple[int, ...]: ...  # empty if from_slot
    @property
    def from_slot(self) -> bool: ...
    @property
    def slot(self) -> int: ...
    @property
    def blocks(self) -> tuple[int, ...]: ...


@dataclass(frozen=True, slots=True)
class Computed:
    """What a step's forward pass left on the device."""

    ids: Tensor  # [tokens] the inputs
    starts: list[int]  # the first of them of each chunk
    logits: Tensor  # a row for each token to sample, then one for each target
    slots: Tensor  # [S] of the chunks that sample


@dataclass(frozen=True, slots=True)
class DecodeLayout:
    """One token of each sequence, all of it in tensors."""

    positions: Tensor
    cache_rows: Tensor
    ragged: RaggedLayout
    adapted: tuple[AdaptedRows, ...] = ()  # steps with adapters are not recorded

    def groups(self, window: int | None) -> tuple[Group, ...]:
        raise NotImplementedError("a layer attends by gathering, whose shapes differ in every step")


@dataclass(frozen=True, slots=True)
class _Graph:
    inputs: Tensor  # int64 [3, sequences]: tokens, positions, slots
    ids: Tensor  # [sequences]
    logits: Tensor  # [sequences, vocabulary]
    replay: Replay


class DecodeGraphs:
    """Graphs over ``forward`` for up to ``capacity.slots`` sequences; none before ``record``.

    ``last`` [slots + 1] holds the token sampled last for each slot. The caches hold one block more
    than ``capacity`` says.
    """

    def __init__(self, forward: DecodeForward, last: Tensor, capacity: Capacity) -> None:
        self._forward = forward
        self._last = last
        self._device = last.device
        self._max_context = capacity.max_context
        self._padding = (0, 0, capacity.slots)
        width = -(-capacity.max_context // capacity.block_size)
        shape = (capacity.slots + 1, width)
        self._tables = torch.full(shape, capacity.blocks, dtype=torch.int32, device=self._device)
        self._known: list[tuple[int, ...]] = [()] * capacity.slots  # what the tables hold, by slot
        self._graphs: dict[int, _Graph] = {}  # by sequences, rising

    @torch.inference_mode()
    def record(self, capture: Capture) -> str:
        """Records as many as work, the largest first. What a person should know, or why none."""
        started, before, failure = time.perf_counter(), capture.memory_used(), ""
        made: dict[int, _Graph] = {}
        for count in reversed(bucket_sizes(len(self._known))):
            if time.perf_counter() - started > RECORD_S:
                failure = f"stopped after {RECORD_S:g} s"
                break
            try:
                made[count] = self._recorded(count, capture)
            except Exception as error:  # whatever it is, steps work without
                failure = f"{count} sequences: {type(error).__name__}: {_first_line(error)}"
                if not isinstance(error, torch.OutOfMemoryError):
                    break
            else:
                logger.info("recorded decode steps of %d sequences", count)
        self._graphs = dict(sorted(made.items()))
        if not made:
            return failure
        seconds, gib = time.perf_counter() - started, (capture.memory_used() - before) / 2**30
        fact = f"{', '.join(map(str, self._graphs))} sequences: {seconds:.1f} s, {gib:.2f} GiB"
        return f"{fact} ({failure})" if failure else fact

    @property
    def sizes(self) -> list[int]:
        """Counts of sequences that steps are padded to, rising."""
        return [*self._graphs]

    def takes(self, chunks: abc.Sequence[Chunk]) -> bool:
        """Whether there is a graph for such a step."""
        return len(chunks) <= max(self._graphs, default=0) and all(map(_decodes, chunks))

    def run(self, chunks: abc.Sequence[Single]) -> Computed:
        """One step over no more than the largest of ``sizes``. It holds until the next step."""
        count = len(chunks)
        graph = next(graph for size, graph in self._graphs.items() if size >= count)
        self._send_blocks(chunks)
        graph.inputs.view(-1).copy_(staged(self._inputs(chunks, graph)), non_blocking=True)
        graph.replay()
        return Computed(
            graph.ids[:count], [*range(count)], graph.logits[:count], graph.inputs[2, :count]
        )

    def forget(self) -> None:
        """What was sent may never have arrived."""
        self._known = [()] * len(self._known)

    def _recorded(self, count: int, capture: Capture) -> _Graph:
        padding = torch.tensor(self._padding, device=self._device)
        inputs = padding[:, None].repeat(1, count)
        keep = torch.arange(count, device=self._device)
        starts = torch.arange(count + 1, dtype=torch.int32, device=self._device)

        def run() -> tuple[Tensor, Tensor]:
            return self._step(inputs, keep, starts)

        with WithoutWaiting():
            run()
        (ids, logits), replay = capture.record(run)
        return _Graph(inputs, ids, logits, replay)

    def _step(self, inputs: Tensor, keep: Tensor, starts: Tensor) -> tuple[Tensor, Tensor]:
        """Only what is launched here is recorded: nothing may depend on a step but ``inputs``."""
        given, positions, slots = inputs.unbind(0)
        ids = torch.where(given < 0, self._last.index_select(0, slots), given)
        table = self._tables.index_select(0, slots)
        size = self._forward.block_size
        blocks = table.gather(1, (positions // size)[:, None])[:, 0]
        rows = blocks * size + positions % size
        counts = (positions + 1).to(torch.int32)
        ragged = RaggedLayout(starts, counts, table, 1, self._max_context)
        return ids, self._forward(DecodeLayout(positions, rows, ragged), ids, keep)

    def _inputs(self, chunks: abc.Sequence[Single], graph: _Graph) -> list[int]:
        rows = [(_token(chunk), chunk.start, chunk.slot) for chunk in chunks]
        rows += [self._padding] * (graph.inputs.shape[1] - len(rows))
        return [value for column in zip(*rows, strict=True) for value in column]

    def _send_blocks(self, chunks: abc.Sequence[Single]) -> None:
        """Brings the tables up to date: usually a block here and there."""
        places: list[int] = []
        blocks: list[int] = []
        for chunk in chunks:
            known = self._known[chunk.slot]
            first = len(known) if chunk.blocks[: len(known)] == known else 0
            start = chunk.slot * self._tables.shape[1]
            places += range(start + first, start + len(chunk.blocks))
            blocks += chunk.blocks[first:]
            self._known[chunk.slot] = chunk.blocks
        if places:
            parts = [(places, torch.int64), (blocks, torch.int32)]
            self._tables.view(-1).index_copy_(0, *to_device_together(parts, self._device))


def bucket_sizes(slots: int) -> list[int]:
    """Powers of two, and all slots."""
    sizes = [1]
    while sizes[-1] * 2 < slots:
        sizes.append(sizes[-1] * 2)
    return [*sizes, slots] if slots > 1 else sizes


def _first_line(error: Exception) -> str:
    return next(iter(str(error).splitlines()), "")


def _decodes(chunk: Chunk) -> bool:
    plain = not chunk.targets and chunk.adapter is None
    return chunk.count == 1 and chunk.samples and plain


def _token(chunk: Single) -> int:
    return ON_DEVICE if chunk.from_slot else chunk.token_ids[0]
