"""What a step's layout tells the model and its attention, however it was built."""

from __future__ import annotations

from collections import abc
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from torch import Tensor


class Span(Protocol):
    """Tokens ``[start, start + count)`` of one sequence; ``blocks`` cover all up to their end."""

    @property
    def start(self) -> int: ...
    @property
    def count(self) -> int: ...
    @property
    def blocks(self) -> tuple[int, ...]: ...
    @property
    def adapter(self) -> str | None: ...


class AdaptedRows(NamedTuple):
    """The flat tokens of a step that go through an adapter."""

    adapter: str
    rows: Tensor | None  # int64; None: all


def blocks_of(span: Span, size: int) -> int:
    """How many blocks of ``size`` tokens hold its sequence up to its end."""
    return -(-(span.start + span.count) // size)


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


class Placement(Protocol):
    """What a model's forward pass and its attention layers ask of a step's layout."""

    @property
    def positions(self) -> Tensor:
        """int64 [tokens]: each flat token's place in its sequence."""
        ...

    @property
    def cache_rows(self) -> Tensor:
        """int64 [tokens]: each flat token's row in a cache seen as [blocks * block_size, ...]."""
        ...

    @property
    def adapted(self) -> abc.Sequence[AdaptedRows]:
        """Those of each adapter that the step has."""
        ...

    @property
    def ragged(self) -> RaggedLayout:
        """The step for kernels that take block tables and lengths themselves."""
        ...

    def groups(self, window: int | None) -> tuple[Group, ...]:
        """All queries of the step, where each sees the last ``window`` keys (None: all)."""
        ...
