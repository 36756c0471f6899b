"""torch's variable-length attention over block tables: CUDA, half precision, no loops.

A sequence's result depends on its own keys, and on how many sequences are in the step: few of them
may have their keys split among the device's processors, where the kernel does that right.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.attention.varlen import varlen_attn

from models.step.cache import LayerCache
from models.step.placement import RaggedLayout

CAUSAL = (-1, 0)
EVERYTHING = (-1, -1)
PRECISIONS = (torch.float16, torch.bfloat16)


def can_varlen(query: Tensor, cache: LayerCache) -> bool:
    """Whether the kernel takes these shapes and types at all."""
    kind = query.dtype in PRECISIONS and query.dtype == cache.storage.dtype
    return kind and query.shape[-1] == cache.key_dim == cache.values.shape[-1]


def varlen_attention(
    layout: RaggedLayout,
    cache: LayerCache,
    query: Tensor,
    *,
    scale: float | None,
    window: int | None,
) -> Tensor:
    """[1, heads, T, dim] queries in the layout's flat order, to [1, T, heads, dim]."""
    shares = query.shape[1] > cache.keys.shape[2]
    visible = _visible(layout, window)
    out = varlen_attn(
        query[0].transpose(0, 1),
        cache.keys,
        cache.values,
        layout.query_starts,
        # Required, and not read: the block table and key_counts say where keys are.
        layout.query_starts,
        layout.max_queries,
        layout.max_keys,
        scale=scale,
        window_size=visible,
        enable_gqa=True,
        seqused_k=layout.key_counts,
        block_table=layout.block_table,
        # Other calls leave rows unwritten when they split: pytorch/pytorch#194167.
        num_splits=None if shares and visible == EVERYTHING else 1,
    )
    assert isinstance(out, Tensor)
    return out[None]


def _visible(layout: RaggedLayout, window: int | None) -> tuple[int, int]:
    """As the kernel takes it. A single query sees all its keys, causal or not.

    Only if it is told so does the kernel read keys once for all the query heads that share them.
    """
    if window is not None and window < layout.max_keys:
        return (window - 1, 0)
    return EVERYTHING if layout.max_queries == 1 else CAUSAL
