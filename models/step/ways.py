"""The ways to run one model over a pool of blocks, best first."""

from __future__ import annotations

import logging
from collections import abc
from typing import Any, Protocol

import torch
from transformers import PreTrainedModel

from models.step.adapting import Adapting
from models.step.grouped import ungroup
from models.step.native.build import NoLibrary, NoNative
from models.step.native.rows import RowKernels
from models.step.native_way import NativeWay
from models.step.paged import Forward
from models.step.place import dtype_named
from models.step.torch_way import TorchWay
from models.step.trace import Trace
from models.step.varlen import PRECISIONS
from models.step.widen import widen_for_good
from models.step.wishes import Wishes

logger = logging.getLogger("stepserve")

VARLEN_BLOCK = 256  # tokens; the variable-length kernel that torch ships may take no other


class Way(Protocol):
    """One way. First it is tried exactly, over a small pool; if it is chosen, made as wished."""

    name: str
    detail: str  # for people
    block_size: int  # tokens
    bytes_per_token: int  # of the pool, as wished
    kv_dtypes: tuple[torch.dtype, ...]

    def try_out(self, blocks: int) -> Forward[Any]:
        """In the model's own precision. Raises whatever keeps it from working here."""
        ...

    @property
    def has_float32(self) -> bool:
        """Whether it computes with a model of float32 by the same kernels."""
        ...

    def try_in_float32(self, blocks: int) -> Forward[Any]:
        """Once tried, of the same weights, which are float32 for a while."""
        ...

    def try_rounded(self, blocks: int) -> Forward[Any] | None:
        """As it will serve, if that is rounded and the model can still be compared with."""
        ...

    def close(self) -> None:
        """Gives the pool back."""
        ...

    def settle(self) -> str:
        """It was chosen: rounds the weights if that is wished. What they are then."""
        ...

    def open(self, blocks: int) -> Forward[Any]:
        """Over a new pool, once settled."""
        ...

    def row_kernels(self) -> RowKernels | None:
        """What samples, if not torch's operators."""
        ...


def ways(
    model: PreTrainedModel,
    trace: Trace,
    wishes: Wishes,
    positions: int,
    adapting: Adapting,
) -> abc.Iterator[Way | str]:
    """Those that ``wishes.kernels`` allow, or in the place of one why it is left out.

    ``trace`` is of the model, and left with nothing but its layers. ``positions`` is the longest
    sequence.
    """
    kernels, size, bits = wishes.kernels, wishes.block_size, wishes.bits
    kv_dtype = None if wishes.kv_cache_dtype == "auto" else dtype_named(wishes.kv_cache_dtype)
    if kernels == "native" or (kernels == "auto" and model.device.type == "cpu"):
        yield from _native(model, trace, wishes, positions, kv_dtype, adapting)
        if ungroup(model):  # they may know whole weights, if not these codes
            yield from _native(model, Trace(model), wishes, positions, kv_dtype, adapting)
    if bits == 4:
        return  # nothing else computes with them
    trace.forget()
    widen_for_good(model)
    half = model.dtype in PRECISIONS and kv_dtype in (None, model.dtype)
    if kernels in ("auto", "varlen") and model.device.type == "cuda" and half:
        for taken in dict.fromkeys((size, VARLEN_BLOCK)):
            yield TorchWay("varlen", model, trace.layers, taken, kv_dtype, adapting, int8=bits == 8)
    elif kernels == "varlen":
        yield "varlen: it needs CUDA, half precision and KV blocks of the same"
    if kernels in ("auto", "sdpa"):
        yield TorchWay("sdpa", model, trace.layers, size, kv_dtype, adapting, int8=bits == 8)


def _native(
    model: PreTrainedModel,
    trace: Trace,
    wishes: Wishes,
    positions: int,
    kv_dtype: torch.dtype | None,
    adapting: Adapting,
) -> abc.Iterator[Way | str]:
    try:
        way = NativeWay(
            model,
            trace,
            block_size=wishes.block_size,
            positions=positions,
            kv_dtype=kv_dtype,
            bits=wishes.bits,
            adapters=adapting.adapters,
        )
    except NoNative as reason:
        if isinstance(reason, NoLibrary):
            logger.warning("steps take longer without native kernels: %s", reason)
        yield f"native: {reason}"
    except Exception as error:  # whatever an unknown architecture does while it is read
        yield f"native: {type(error).__name__}: {error}"
    else:
        trace.forget()
        yield way
