"""What the configuration asks of a replica's step model."""

from __future__ import annotations

from dataclasses import dataclass

import torch


@dataclass(frozen=True, slots=True, kw_only=True)
class Wishes:
    """None is to be found out."""

    kernels: str = "auto"  # or native, sdpa, varlen
    max_context: int | None = None  # tokens
    block_size: int = 16  # tokens
    int8: bool = False  # weights of linear layers in 8 bits
    kv_cache_dtype: torch.dtype | None = None
    kv_cache_gib: float | None = None
    sharing: int = 1  # models that take KV blocks of the same memory, on a CPU
    prefix_cache: bool = True
    slots: int = 32
    step_tokens: int = 2048  # of the largest step
    cuda_graphs: bool = True
