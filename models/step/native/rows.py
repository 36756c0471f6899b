"""The compiled kernels over rows of logits on a CPU: a token of each, and how likely they were."""

from __future__ import annotations

import logging
from collections import abc
from struct import Struct
from typing import Any, NamedTuple

import torch
from torch import Tensor

from models.step.native.build import NoNative
from models.step.native.team import Team

logger = logging.getLogger("stepserve")

WISH = Struct("ddffi0d")  # as in rows.cpp, where the next one begins as a double does


class RowWish(NamedTuple):
    """How one row is sampled; what is off is 1 for ``top_p``, and 0 for all others."""

    uniform: float
    top_p: float
    temperature: float  # 0: greedy
    min_p: float
    top_k: int


GREEDY = RowWish(0, 1, 0, 0, 0)


class RowKernels:
    """The rows are shared out among a team."""

    def __init__(self, team: Team) -> None:
        self._team = team

    def sample(self, logits: Tensor, wishes: abc.Sequence[RowWish]) -> Tensor:
        """Int64 tokens [S] from ``logits`` [S, vocabulary] float32."""
        told = b"".join([WISH.pack(*wish) for wish in wishes])
        tokens = torch.empty(len(wishes), dtype=torch.int64)
        rows = self._rows(logits)
        self._team.call(self._team.library.rows_sample, *rows, told, tokens.data_ptr())
        return tokens

    def score(self, logits: Tensor, tokens: Tensor, top: int) -> tuple[Tensor, Tensor]:
        """Logarithms and ids, both [R, 1 + top]: of ``tokens`` [R], then of the likeliest.

        In place of the first id stands the token's rank. There are at least ``top`` tokens.
        """
        assert top <= logits.shape[1]
        values = torch.empty(len(tokens), 1 + top)
        ids = torch.empty(len(tokens), 1 + top, dtype=torch.int64)
        tokens = tokens.contiguous()
        rows = self._rows(logits)
        out = (values.data_ptr(), ids.data_ptr())
        self._team.call(self._team.library.rows_score, *rows, tokens.data_ptr(), top, *out)
        return values, ids

    def _rows(self, logits: Tensor) -> tuple[Any, ...]:
        """What both functions take first."""
        assert logits.dtype == torch.float32
        assert logits.stride(1) == 1
        return self._team.handle, logits.data_ptr(), logits.stride(0), *logits.shape


def row_kernels(device: torch.device) -> RowKernels | None:
    """With as many threads as torch has; None if they are not for ``device`` or cannot be had.

    Without them torch's operators do the same, more slowly.
    """
    if device.type != "cpu":
        return None
    try:
        return RowKernels(Team(torch.get_num_threads()))
    except NoNative as reason:
        logger.info("sampling by torch's operators: %s", reason)
        return None
