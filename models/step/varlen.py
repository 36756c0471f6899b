"""torch's variable-length attention over block tables: CUDA, half precision, no loops.

One split a sequence, so that no sequence's result depends on what else is in the step.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.attention.varlen import varlen_attn

from models.step.cache import LayerCache
from models.step.placement import RaggedLayout

CAUSAL = (-1, 0)
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
    out = varlen_attn(
        query[0].transpose(0, 1),
        cache.keys,
        cache.values,
        layout.query_starts,
        None,  # the block table and key_counts say where keys are
        layout.max_queries,
        layout.max_keys,
        scale=scale,
        window_size=CAUSAL if window is None else (window - 1, 0),
        enable_gqa=True,
        seqused_k=layout.key_counts,
        block_table=layout.block_table,
        num_splits=1,
    )
    assert isinstance(out, Tensor)
    return out[None]
