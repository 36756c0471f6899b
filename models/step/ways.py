"""The ways to run one model over a pool of blocks, best first."""

from __future__ import annotations

from collections import abc
from typing import Any, Protocol

import torch
from transformers import PreTrainedModel

from models.step import cache
from models.step.attention import Recorder
from models.step.native.blueprint import LANES, Blueprint, read
from models.step.native.build import NoNative, library
from models.step.native.forward import NativeForward
from models.step.native.stack import Stack
from models.step.paged import Forward, PagedForward

VARLEN_BLOCK = 256  # tokens; the variable-length kernel that torch ships may take no other
INT8_ERROR = 0.1  # of logits, relative: what rounding to 8 bit explains
HALF_KV_ERROR = 0.02


class Way(Protocol):
    """One way: its pool is there from ``open`` until ``close``."""

    name: str
    block_size: int  # tokens
    bytes_per_token: int
    most_error: float | None  # of its logits, relative; None: as the model's precision has it

    def open(self, blocks: int) -> Forward[Any]:
        """The forward pass over a new pool. Raises whatever keeps it from working here."""
        ...

    def close(self) -> None:
        """Gives the pool back."""
        ...

    def settle(self) -> None:
        """It was chosen: what it does not need goes."""
        ...


class TorchWay:
    """The model's own modules, with paged attention in their midst."""

    most_error = None

    def __init__(self, name: str, model: PreTrainedModel, seen: Recorder, block_size: int) -> None:
        self.name = name  # sdpa or varlen
        self.block_size = block_size
        self.bytes_per_token = sum(layer.bytes_per_token for layer in seen.layers)
        self._model = model
        self._seen = seen

    def open(self, blocks: int) -> PagedForward:
        cache.allocate(self._seen.layers, blocks, self.block_size, self._model.device)
        return PagedForward(self._model, self.block_size, varlen=self.name == "varlen")

    def close(self) -> None:
        cache.release(self._seen.layers)

    def settle(self) -> None:
        """Nothing to do: it needs all of the model."""


class NativeWay:
    """The compiled stack, in place of the model's modules."""

    name = "native"

    def __init__(
        self,
        model: PreTrainedModel,
        blueprint: Blueprint,
        *,
        block_size: int,
        positions: int,
        kv_dtype: torch.dtype,
        int8: bool,
    ) -> None:
        self.block_size = block_size
        self.bytes_per_token = blueprint.numbers_per_token * kv_dtype.itemsize
        self.most_error = INT8_ERROR if int8 else _error(kv_dtype)
        self._model = model
        self._blueprint = blueprint
        self._positions = positions
        self._kv_dtype = kv_dtype
        self._int8 = int8
        self._stack: Stack | None = None

    def open(self, blocks: int) -> NativeForward:
        self._stack = Stack(
            self._blueprint,
            threads=torch.get_num_threads(),
            positions=self._positions,
            block_size=self.block_size,
            kv_dtype=self._kv_dtype,
            int8=self._int8,
        )
        self._stack.allocate(blocks)
        return NativeForward(self._stack, self.block_size)

    def close(self) -> None:
        if self._stack is not None:
            self._stack.close()

    def settle(self) -> None:
        """The model's parameters go: the stack has copies."""
        for parameter in self._model.parameters():
            parameter.data = parameter.data.new_empty(0)


def _error(kv_dtype: torch.dtype) -> float | None:
    return None if kv_dtype == torch.float32 else HALF_KV_ERROR


def native_way(
    model: PreTrainedModel,
    seen: Recorder,
    *,
    block_size: int,
    positions: int,
    kv_dtype: torch.dtype,
    int8: bool,
) -> NativeWay:
    """Raises NoNative if the kernels do not know this model, or cannot be had on this machine."""
    if model.device.type != "cpu":
        raise NoNative("they are for CPUs")
    if block_size % LANES:
        raise NoNative(f"blocks of {block_size} tokens are not made of {LANES}")
    blueprint = read(model, seen.options)
    library()
    return NativeWay(
        model,
        blueprint,
        block_size=block_size,
        positions=positions,
        kv_dtype=kv_dtype,
        int8=int8,
    )
