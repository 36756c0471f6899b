"""The compiled kernels over rows of logits on a CPU: a token of each, and how likely they were."""

from __future__ import annotations

import logging
import threading
from collections import abc
from ctypes import CDLL, c_int32, c_int64, c_void_p
from functools import cache
from typing import Any, NamedTuple

import numpy
import torch
from torch import Tensor

from models.step.native.build import NoNative, library

log = logging.getLogger("stepserve")

WISH = numpy.dtype(  # as in rows.cpp
    [
        ("uniform", "f8"),
        ("top_p", "f8"),
        ("temperature", "f4"),
        ("min_p", "f4"),
        ("top_k", "i4"),
        ("unused", "i4"),
    ]
)


class RowWish(NamedTuple):
    """How one row is sampled; what is off is 1 for ``top_p``, and 0 for all others."""

    uniform: float
    top_p: float
    temperature: float  # 0: greedy
    min_p: float
    top_k: int
    unused: int = 0


GREEDY = RowWish(0, 1, 0, 0, 0)


class RowKernels:
    """``threads`` go through the rows; one call at a time."""

    def __init__(self, library: CDLL, threads: int) -> None:
        self._lock = threading.Lock()
        create = _function(library, "rows_create", [c_int32], c_void_p)
        row = [c_void_p, c_void_p, c_int64, c_int32, c_int32]
        self._sample = _function(library, "rows_sample", [*row, c_void_p, c_void_p])
        self._score = _function(
            library, "rows_score", [*row, c_void_p, c_int32, c_void_p, c_void_p]
        )
        self._crew = create(threads)

    def sample(self, logits: Tensor, wishes: abc.Sequence[RowWish]) -> Tensor:
        """Int64 tokens [S] from ``logits`` [S, vocabulary] float32."""
        told = numpy.array(wishes, WISH)
        tokens = torch.empty(len(wishes), dtype=torch.int64)
        with self._lock:
            self._sample(*self._rows(logits), told.ctypes.data, tokens.data_ptr())
        return tokens

    def score(self, logits: Tensor, tokens: Tensor, top: int) -> tuple[Tensor, Tensor]:
        """Logarithms and ids, both [R, 1 + top]: of ``tokens`` [R], then of the likeliest.

        In place of the first id stands the token's rank.
        """
        values = torch.empty(len(tokens), 1 + top)
        ids = torch.empty(len(tokens), 1 + top, dtype=torch.int64)
        tokens = tokens.contiguous()
        with self._lock:
            self._score(
                *self._rows(logits), tokens.data_ptr(), top, values.data_ptr(), ids.data_ptr()
            )
        return values, ids

    def _rows(self, logits: Tensor) -> tuple[int | None, int, int, int, int]:
        assert logits.dtype == torch.float32
        assert logits.stride(1) == 1
        rows, vocab = logits.shape
        return self._crew, logits.data_ptr(), logits.stride(0), rows, vocab


def row_kernels(device: torch.device) -> RowKernels | None:
    """Those of this process, if they are for ``device`` and can be had."""
    return _kernels() if device.type == "cpu" else None


@cache
def _kernels() -> RowKernels | None:
    """Made once, for as many threads as torch has then; None where there is nothing to make them.

    Without them torch's operators do the same, more slowly.
    """
    try:
        return RowKernels(library(), torch.get_num_threads())
    except NoNative as reason:
        log.info("sampling by torch's operators: %s", reason)
        return None


def _function(
    library: CDLL, name: str, arguments: abc.Sequence[Any], result: type | None = None
) -> abc.Callable[..., int | None]:
    function = getattr(library, name)
    function.argtypes, function.restype = arguments, result
    found: abc.Callable[..., int | None] = function
    return found
