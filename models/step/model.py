"""The interface of a model that advances many sequences by one step."""

from __future__ import annotations

from collections import abc
from dataclasses import dataclass
from typing import Protocol

from models.schedule.sequence import Chunk, Scores


@dataclass(frozen=True, slots=True)
class Capacity:
    """How much a step model holds."""

    max_context: int  # tokens of one sequence
    vocab_size: int
    slots: int  # sequences that run at once
    blocks: int  # KV blocks in the pool
    block_size: int  # tokens of one block
    prefix_cache: bool  # blocks of equal prefixes may be shared
    adapters: tuple[str, ...] = ()  # that sequences may name
    drafts: bool = False  # a chunk may have a draft, and sample in each of its parts


class InFlight(Protocol):
    """A step on the device."""

    def tokens(self) -> list[int]:
        """Waits for the step; ``chunk.sampled`` tokens of each chunk, in order."""
        ...

    def scores(self) -> list[Scores]:
        """Waits for the step; ``chunk.scores`` of each chunk, in order: targets, then the sampled.

        Each with as many ``top`` as its sequence's ``prompt_logprobs`` or ``logprobs`` say. Only
        called if some chunk asks.
        """
        ...


class StepModel(Protocol):
    """Many sequences, one step. All methods are called on one thread, in order."""

    capacity: Capacity
    launch_ahead: bool  # whether step N+1 gains from being launched before step N's tokens are read

    def launch(self, chunks: abc.Sequence[Chunk]) -> InFlight:
        """Starts one step over at most ``slots`` chunks, one a sequence.

        Where a chunk has a ``ruling``, only what that allows may be sampled: anything else fails
        the sequence. One that is ``forced`` comes in any case; what is sampled, and scored, instead
        of it is passed over.
        """
        ...

    def release(self, slot: int) -> None:
        """The sequence in this slot has ended or lost its blocks."""
        ...

    def reset(self) -> None:
        """Forgets all sequences, after a step has failed."""
        ...

    def describe(self) -> dict[str, str]:
        """What a person wants to know at start: device, dtype, kernels, weights, KV pool."""
        ...
