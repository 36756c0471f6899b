"""The KV pool: one tensor of blocks for each attention layer, and how many blocks there are."""

from __future__ import annotations

from collections import abc
from dataclasses import dataclass, replace

import numpy
import torch
from torch import Tensor, nn

from models.step.host import available_memory

CPU_SHARE = 1 / 3  # for all models of an app together: each may see the same memory free
CUDA_SHARE = 0.9  # of what the largest step leaves; the rest is for the libraries' own buffers


@dataclass(frozen=True, slots=True)
class LayerShape:
    """What one attention module was seen to cache for each token."""

    module: nn.Module
    heads: int
    key_dim: int
    value_dim: int
    dtype: torch.dtype

    @property
    def bytes_per_token(self) -> int:
        return self.heads * (self.key_dim + self.value_dim) * self.dtype.itemsize

    def stored_as(self, dtype: torch.dtype | None) -> LayerShape:
        """The same with keys and values of ``dtype``, if that is not None."""
        return self if dtype is None else replace(self, dtype=dtype)


class LayerCache:
    """Keys and values of one layer, side by side in [blocks, block_size, heads, key + value].

    May hold them in another type than is computed in: converted when written and when read.
    """

    def __init__(self, storage: Tensor, key_dim: int) -> None:
        self.storage = storage
        self.keys = storage[..., :key_dim]
        self.values = storage[..., key_dim:]
        self.key_dim = key_dim
        self._rows = storage.view(-1, *storage.shape[2:])
        self._blocks = storage.view(storage.shape[0], -1)

    def write(self, rows: Tensor, key: Tensor, value: Tensor) -> None:
        """Stores [1, heads, T, dim] of each at ``rows`` [T] of blocks * block_size."""
        both = torch.cat((key[0], value[0]), -1).transpose(0, 1)
        self._rows.index_copy_(0, rows, both.to(self.storage.dtype))

    def read(
        self, blocks: Tensor, sequences: int, scratch: Scratch, dtype: torch.dtype
    ) -> tuple[Tensor, Tensor]:
        """Gathers ``blocks`` as [sequences, heads, positions, dim] of keys and values.

        The result lies in ``scratch`` and is gone at the next read.
        """
        out = scratch.take(self._blocks, blocks.shape[0])
        torch.index_select(self._blocks, 0, blocks, out=out)
        if dtype != out.dtype:
            out = scratch.take(self._blocks, blocks.shape[0], dtype).copy_(out)
        seen = out.view(sequences, -1, *self.storage.shape[2:]).transpose(1, 2)
        return seen[..., : self.key_dim], seen[..., self.key_dim :]


class Scratch:
    """Memory that all layers of all steps gather into: fresh pages cost more than the copy."""

    def __init__(self) -> None:
        self._buffers: dict[torch.dtype, Tensor] = {}

    def take(self, like: Tensor, rows: int, dtype: torch.dtype | None = None) -> Tensor:
        """An uninitialised [rows, like.shape[1]] of ``dtype`` (None: as ``like``) on its device."""
        size, dtype = rows * like.shape[1], dtype or like.dtype
        buffer = self._buffers.get(dtype)
        if buffer is None or buffer.numel() < size:
            buffer = self._buffers[dtype] = like.new_empty(size, dtype=dtype)
        return buffer[:size].view(rows, -1)


@dataclass(frozen=True, slots=True)
class KvMemory:
    """Bytes for the KV cache, and how that came about."""

    bytes: int
    note: str


def kv_memory(
    device: torch.device, gib: float | None, activations: int = 0, *, sharing: int = 1
) -> KvMemory:
    """As told, else a share of what is free beside the loaded weights.

    ``activations`` are the bytes of a CUDA device that the largest step takes for itself;
    ``sharing`` is how many models in all take KV blocks of a CPU's memory.
    """
    if gib is not None:
        return KvMemory(int(gib * 2**30), "as kv_cache_gib says")
    if device.type == "cuda":
        torch.cuda.empty_cache()
        free = torch.cuda.mem_get_info(device)[0]
        note = f"{CUDA_SHARE:.0%} of {_gib(free)} free less {_gib(activations)} for a step"
        return KvMemory(max(0, int((free - activations) * CUDA_SHARE)), note)
    free = available_memory()
    note = f"a third of {_gib(free)} free"
    if sharing > 1:
        note += f", divided among {sharing} models"
    return KvMemory(int(free * CPU_SHARE / sharing), note)


def _gib(size: int) -> str:
    return f"{size / 2**30:.2f} GiB"


@dataclass(frozen=True, slots=True)
class PoolSize:
    """Blocks that fit, the longest sequence they hold, and what a person should know of it."""

    blocks: int
    max_context: int
    note: str  # what decided
    lowered: str = ""  # why the longest sequence is shorter than wished


def size_pool(
    bytes_per_block: int, memory: KvMemory, *, block_size: int, max_context: int, slots: int
) -> PoolSize:
    """As many blocks as ``memory`` holds and ``slots`` sequences of ``max_context`` can use.

    Too few for one such sequence lower ``max_context``; not even one block is a ValueError.
    """
    fitting = memory.bytes // bytes_per_block
    if fitting < 1:
        raise ValueError(
            f"the KV cache does not fit: one block of {block_size} tokens takes "
            f"{bytes_per_block / 2**20:.1f} MiB, and {memory.bytes / 2**20:.1f} MiB are given to it"
            f" ({memory.note})"
        )
    usable = slots * -(-max_context // block_size)
    if usable <= fitting:
        return PoolSize(usable, max_context, f"all that {slots} sequences can use")
    if fitting * block_size >= max_context:
        return PoolSize(fitting, max_context, memory.note)
    lowered = f"lowered from {max_context}: the KV cache holds no more; raise kv_cache_gib"
    return PoolSize(fitting, fitting * block_size, memory.note, lowered)


def allocate(
    layers: abc.Sequence[LayerShape], blocks: int, block_size: int, device: torch.device
) -> None:
    """Hangs a cache of ``blocks`` on each layer's module, as ``module.paged_cache``."""
    for layer in layers:
        shape = (blocks, block_size, layer.heads, layer.key_dim + layer.value_dim)
        storage = _zeros(shape, layer.dtype, device)
        vars(layer.module)["paged_cache"] = LayerCache(storage, layer.key_dim)


def release(layers: abc.Sequence[LayerShape]) -> None:
    """Takes the caches off their modules again."""
    for layer in layers:
        vars(layer.module).pop("paged_cache", None)


def _zeros(shape: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> Tensor:
    """Zeros, so that what is masked is finite; on a CPU pages are taken only when written."""
    if device.type != "cpu":
        return torch.zeros(shape, dtype=dtype, device=device)
    size = int(numpy.prod(shape)) * dtype.itemsize
    return torch.from_numpy(numpy.zeros(size, numpy.uint8)).view(dtype).view(shape)
