"""The ways to run one model over a pool of blocks, best first."""

from __future__ import annotations

import logging
from collections import abc
from typing import Any, Protocol

import torch
from transformers import PreTrainedModel

from models.step import cache
from models.step.attention import Recorder
from models.step.host import available_memory, instructions
from models.step.native.blueprint import LANES, read_blueprint
from models.step.native.build import NoLibrary, NoNative
from models.step.native.forward import NativeForward
from models.step.native.rows import RowKernels, row_kernels
from models.step.native.stack import Stack
from models.step.native.team import Team
from models.step.paged import Forward, PagedForward
from models.step.place import dtype_named
from models.step.varlen import PRECISIONS
from models.step.weights import parameters_of, settled_weights, weights_of
from models.step.wishes import Wishes

logger = logging.getLogger("stepserve")

VARLEN_BLOCK = 256  # tokens; the variable-length kernel that torch ships may take no other
LONGEST_PROBE = 64  # tokens


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


class TorchWay:
    """The model's own modules, with paged attention in their midst."""

    detail = ""

    def __init__(
        self,
        name: str,
        model: PreTrainedModel,
        seen: Recorder,
        block_size: int,
        kv_dtype: torch.dtype | None,
        int8: bool,
    ) -> None:
        self.name = name  # sdpa or varlen
        self._int8 = int8
        self.block_size = block_size
        self._model = model
        self._seen = seen
        self._layers = [layer.stored_as(kv_dtype) for layer in seen.layers]
        self.bytes_per_token = sum(layer.bytes_per_token for layer in self._layers)
        self.kv_dtypes = tuple(dict.fromkeys(layer.dtype for layer in self._layers))

    def try_out(self, blocks: int) -> PagedForward:
        cache.allocate(self._seen.layers, blocks, self.block_size, self._model.device)
        return self._forward()

    def close(self) -> None:
        cache.release(self._seen.layers)

    def try_rounded(self, blocks: int) -> None:
        """Rounding changes the model itself."""

    def row_kernels(self) -> RowKernels | None:
        return row_kernels(self._model.device)

    def settle(self) -> str:
        return settled_weights(self._model, int8=self._int8)

    def open(self, blocks: int) -> PagedForward:
        # One more than is handed out, for what pads recorded steps.
        cache.allocate(self._layers, blocks + 1, self.block_size, self._model.device)
        return self._forward()

    def _forward(self) -> PagedForward:
        return PagedForward(self._model, self.block_size, varlen=self.name == "varlen")


class NativeWay:
    """The compiled stack, in place of the model's modules."""

    name = "native"

    def __init__(
        self,
        model: PreTrainedModel,
        seen: Recorder,
        *,
        block_size: int,
        positions: int,
        kv_dtype: torch.dtype | None,
        int8: bool,
    ) -> None:
        """Raises NoNative if the kernels do not know this model, or cannot be had here."""
        _require_suited(model, block_size)
        self._blueprint = read_blueprint(model, seen.options)
        self._team = Team(torch.get_num_threads())
        # 8-bit weights are read so fast that keys and values of 32 would be most of a step.
        half = torch.bfloat16 if self._team.multiplies_bfloat16 else torch.float16
        self._kv_dtype = kv_dtype or (half if int8 else model.dtype)
        self._arithmetic = _arithmetic(model, self._team, int8=int8)
        self.block_size = block_size
        self.bytes_per_token = self._blueprint.numbers_per_token * self._kv_dtype.itemsize
        self.kv_dtypes: tuple[torch.dtype, ...] = (self._kv_dtype,)
        self._model = model
        self._positions = max(positions, LONGEST_PROBE)
        self._stack: Stack | None = None
        self.detail = ""

    def try_out(self, blocks: int) -> NativeForward:
        self._stack = self._pack(torch.float32, torch.float32)
        self.detail = self._stack.instructions
        return self.open(blocks)

    def try_rounded(self, blocks: int) -> NativeForward | None:
        assert self._stack is not None
        if self._arithmetic == self._kv_dtype == torch.float32:
            return None
        if self._arithmetic == torch.int8:
            self._stack.close()
            self._stack = self._pack(self._kv_dtype, torch.int8)
        else:
            self._stack.round_to(self._kv_dtype, self._arithmetic)
        return self.open(blocks)

    def close(self) -> None:
        if self._stack is not None and self._stack.close.alive:
            self._stack.allocate(0)

    def settle(self) -> str:
        """The model's parameters go: the stack has copies.

        What is left to torch is little, and its threads would keep cores from the stack's.
        """
        assert self._stack is not None
        parameters = parameters_of(self._model)
        for parameter in self._model.parameters():
            parameter.data = parameter.data.new_empty(0)
        torch.set_num_threads(1)
        held = weights_of(self._model, parameters, self._stack.weight_bytes)
        return f"{held} {self._stack.weight_kind}"

    def open(self, blocks: int) -> NativeForward:
        assert self._stack is not None
        self._stack.allocate(blocks)
        return NativeForward(self._stack, self.block_size)

    def row_kernels(self) -> RowKernels:
        """On the same threads."""
        return RowKernels(self._team)

    def _pack(self, kv_dtype: torch.dtype, arithmetic: torch.dtype) -> Stack:
        return Stack(
            self._blueprint,
            self._team,
            positions=self._positions,
            block_size=self.block_size,
            kv_dtype=kv_dtype,
            arithmetic=arithmetic,
        )


def _arithmetic(model: PreTrainedModel, team: Team, *, int8: bool) -> torch.dtype:
    """What the matrices' products are of: bfloat16 only where that is faster."""
    if int8:
        return torch.int8
    faster = model.dtype == torch.bfloat16 and team.multiplies_bfloat16
    return torch.bfloat16 if faster else torch.float32


def _require_suited(model: PreTrainedModel, block_size: int) -> None:
    if model.device.type != "cpu":
        raise NoNative("they are for CPUs")
    if block_size % LANES:
        raise NoNative(f"blocks of {block_size} tokens are not made of {LANES}")
    if model.dtype == torch.bfloat16 and "amx_bf16" in instructions():
        raise NoNative("they do not use the processor's matrix units for bfloat16")
    copies = 4 * parameters_of(model)
    if copies > (free := available_memory()):
        raise NoNative(
            f"copies of its weights take up to {copies / 2**30:.1f} GiB while it is loaded, and"
            f" {free / 2**30:.1f} GiB are free"
        )


def ways(
    model: PreTrainedModel, seen: Recorder, wishes: Wishes, positions: int
) -> abc.Iterator[Way | str]:
    """Those that ``wishes.kernels`` allow, or in the place of one why it is left out.

    ``positions`` is the longest sequence.
    """
    kernels, size, int8 = wishes.kernels, wishes.block_size, wishes.int8
    kv_dtype = None if wishes.kv_cache_dtype == "auto" else dtype_named(wishes.kv_cache_dtype)
    if kernels == "native" or (kernels == "auto" and model.device.type == "cpu"):
        try:
            yield NativeWay(
                model, seen, block_size=size, positions=positions, kv_dtype=kv_dtype, int8=int8
            )
        except NoNative as reason:
            if isinstance(reason, NoLibrary):
                logger.warning("steps take longer without native kernels: %s", reason)
            yield f"native: {reason}"
    half = model.dtype in PRECISIONS and kv_dtype in (None, model.dtype)
    if kernels in ("auto", "varlen") and model.device.type == "cuda" and half:
        for taken in dict.fromkeys((size, VARLEN_BLOCK)):
            yield TorchWay("varlen", model, seen, taken, kv_dtype, int8)
    elif kernels == "varlen":
        yield "varlen: it needs CUDA, half precision and KV blocks of the same"
    if kernels in ("auto", "sdpa"):
        yield TorchWay("sdpa", model, seen, size, kv_dtype, int8)
