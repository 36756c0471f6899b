"""What the configuration asks of a replica's step model. Imports no torch."""

from __future__ import annotations

from dataclasses import dataclass

BITS = {"int8": 8, "int4": 4}


@dataclass(frozen=True, slots=True, kw_only=True)
class Wishes:
    """As configured, with no defaults of their own; None and ``auto`` are to be found out."""

    device: str  # or auto
    dtype: str  # a torch dtype's name, auto, int8 or int4
    kernels: str  # native, sdpa, varlen, or auto
    cuda_graphs: bool
    compile_layers: bool
    threads: int | None  # of torch, on a CPU
    max_context: int | None  # tokens
    block_size: int  # tokens
    kv_cache_dtype: str  # a torch dtype's name, or auto
    kv_cache_gib: float | None
    sharing: int  # models that take KV blocks of the same memory, on a CPU
    prefix_cache: bool
    slots: int
    step_tokens: int  # of the largest step

    @property
    def bits(self) -> int | None:
        """Of linear layers' weights, where those are rounded."""
        return BITS.get(self.dtype)
