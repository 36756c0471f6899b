"""The compiled stack over a pool of blocks, in the place of a model's modules."""

from __future__ import annotations

from collections import abc
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedModel

from models.step.adapters import Adapter
from models.step.grouped import GroupedLinear
from models.step.host import available_memory
from models.step.native.adapters import NativeAdapters
from models.step.native.blueprint import read_blueprint
from models.step.native.build import NoNative
from models.step.native.forward import NativeForward
from models.step.native.library import LANES
from models.step.native.rows import RowKernels
from models.step.native.stack import Stack
from models.step.native.team import Team
from models.step.native.weights import Held
from models.step.trace import Trace
from models.step.weights import parameters_of, weights_of
from models.step.widen import computed_in, widen_no_more

LONGEST_PROBE = 64  # tokens
ROUNDED = {8: Held.INT8, 4: Held.INT4}


class NativeWay:
    """See ``Way``."""

    name = "native"

    def __init__(
        self,
        model: PreTrainedModel,
        trace: Trace,
        *,
        block_size: int,
        positions: int,
        kv_dtype: torch.dtype | None,
        bits: int | None,
        adapters: abc.Sequence[Adapter] = (),
    ) -> None:
        """Raises NoNative if the kernels do not know this model, or cannot be had here."""
        _require_suited(model, block_size, bits)
        self._blueprint = read_blueprint(model, trace)
        self._adapters = NativeAdapters(adapters, self._blueprint, model)
        self._team = Team(torch.get_num_threads())
        # Such weights are read so fast that keys and values of 32 would be most of a step.
        half = torch.bfloat16 if self._team.multiplies_bfloat16 else torch.float16
        self._kv_dtype = kv_dtype or (half if bits else computed_in(model))
        self._held = Held.EXACT if bits is None else ROUNDED[bits]
        self._arithmetic = torch.int8 if bits else _arithmetic(model, self._team)
        self.block_size = block_size
        self.bytes_per_token = self._blueprint.numbers_per_token * self._kv_dtype.itemsize
        self.kv_dtypes: tuple[torch.dtype, ...] = (self._kv_dtype,)
        self._model = model
        self._positions = max(positions, LONGEST_PROBE)
        self._stack: Stack | None = None
        self.detail = ""

    def try_out(self, blocks: int) -> NativeForward:
        exact = Held.EXACT if self._held == Held.EXACT else Held.IN_PLACE
        self._stack = self._pack(torch.float32, torch.float32, exact)
        self.detail = self._stack.instructions
        return self.open(blocks)

    @property
    def has_float32(self) -> bool:
        return True

    def try_in_float32(self, blocks: int) -> NativeForward:
        """It computed so from the beginning."""
        return self.open(blocks)

    def try_rounded(self, blocks: int) -> NativeForward | None:
        assert self._stack is not None
        if self._arithmetic == self._kv_dtype == torch.float32:
            return None
        if self._held != Held.EXACT:
            self._stack.close()
            self._stack = self._pack(self._kv_dtype, self._arithmetic, self._held)
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
        widen_no_more(self._model)
        for parameter in self._model.parameters():
            parameter.data = parameter.data.new_empty(0)
        for module in self._model.modules():
            if isinstance(module, GroupedLinear):
                module.scales = module.zeros = torch.empty(0)
        torch.set_num_threads(1)
        held = weights_of(self._model, parameters, self._stack.weight_bytes)
        return f"{held} {self._stack.weight_kind}"

    def open(self, blocks: int) -> NativeForward:
        assert self._stack is not None
        self._stack.allocate(blocks)
        return NativeForward(self._stack, self.block_size, self._adapters.places)

    def row_kernels(self) -> RowKernels:
        """On the same threads."""
        return RowKernels(self._team)

    def _pack(self, kv_dtype: torch.dtype, arithmetic: torch.dtype, held: Held) -> Stack:
        stack = Stack(
            self._blueprint,
            self._team,
            positions=self._positions,
            block_size=self.block_size,
            kv_dtype=kv_dtype,
            arithmetic=arithmetic,
            held=held,
        )
        stack.set_adapters(self._adapters)
        return stack


def _arithmetic(model: PreTrainedModel, team: Team) -> torch.dtype:
    """What the matrices' products are of: bfloat16 only where that is faster."""
    faster = computed_in(model) == torch.bfloat16 and team.multiplies_bfloat16
    return torch.bfloat16 if faster else torch.float32


def _require_suited(model: PreTrainedModel, block_size: int, bits: int | None) -> None:
    if model.device.type != "cpu":
        raise NoNative("they are for CPUs")
    if block_size % LANES:
        raise NoNative(f"blocks of {block_size} tokens are not made of {LANES}")
    copies = _copies(model, bits)
    if copies > (free := available_memory()):
        raise NoNative(
            f"copies of its weights take up to {copies / 2**30:.1f} GiB while it is loaded, and"
            f" {free / 2**30:.1f} GiB are free"
        )


def _copies(model: PreTrainedModel, bits: int | None) -> int:
    """Bytes at most: bfloat16 and codes as they are, all else as float32, the embedding twice.

    Rounded weights take ``bits``, and what reads them a bit more.
    """
    embedding: Any = model.get_input_embeddings()
    rounded = sum(p.numel() for p in model.parameters()) * (bits or 0) * 5 // 32
    exact = [] if bits else [*model.parameters()]
    return rounded + _exact_bytes([*exact, embedding.weight])


def _exact_bytes(tensors: abc.Iterable[Tensor]) -> int:
    as_they_are = {torch.bfloat16: 2, torch.uint8: 1}
    return sum(t.numel() * as_they_are.get(t.dtype, 4) for t in tensors)
