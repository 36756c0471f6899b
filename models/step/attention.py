"""Paged attention under the name ``paged`` for any transformers model, over its own modules.

The model is called as usual; what the step is comes through ``attending``, one a thread. Every
layer first writes the keys and values of all the step's tokens, then attends: sequences of one
step may share blocks.
"""

from __future__ import annotations

import threading
from collections import abc
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers.modeling_utils import AttentionInterface

from models.step.cache import LayerCache, Scratch
from models.step.placement import Group, Placement
from models.step.varlen import can_varlen, varlen_attention

PAGED = "paged"  # transformers gives meaning to names with flash, sdpa, flex_attention or `paged|`


@dataclass(frozen=True, slots=True)
class Options:
    """How one layer attends, beyond its queries, keys and values."""

    scale: float | None = None  # None: 1 / sqrt(key dim)
    window: int | None = None
    softcap: float | None = None
    sinks: Tensor | None = None  # [query heads]


class Attention(Protocol):
    """What ``attending`` puts behind every attention layer."""

    def attend(
        self, module: nn.Module, query: Tensor, key: Tensor, value: Tensor, options: Options
    ) -> Tensor:
        """[1, heads, T, dim] of each, to [1, T, query heads, value dim]."""
        ...


class _Current(threading.local):
    attention: Attention | None = None


_current = _Current()


@contextmanager
def attending(attention: Attention) -> abc.Iterator[None]:
    """Within it, ``attention`` serves the models that run on this thread."""
    _current.attention = attention
    try:
        yield
    finally:
        _current.attention = None


def paged_attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None = None,
    *,
    scaling: float | None = None,
    sliding_window: int | None = None,
    softcap: float | None = None,
    s_aux: Tensor | None = None,
    position_bias: Tensor | None = None,
    **unused: Any,
) -> tuple[Tensor, None]:
    """The function that transformers' layers call; the layout says who sees what.

    transformers makes no mask for a name that it does not know, so a mask is the model's own idea
    of who sees what, and refused even if it changes nothing in a short probe.
    """
    if _current.attention is None:
        raise RuntimeError("a model with paged attention was called outside `attending`")
    if attention_mask is not None or position_bias is not None:
        raise NotImplementedError("it makes masks or position biases of its own")
    options = Options(scaling, sliding_window, softcap, s_aux)
    return _current.attention.attend(module, query, key, value, options), None


AttentionInterface.register(PAGED, paged_attention)


class PagedAttention:
    """Attention of one step over the caches hung on the modules."""

    def __init__(self, layout: Placement, scratch: Scratch, *, varlen: bool = False) -> None:
        self._layout = layout
        self._scratch = scratch
        self._varlen = varlen

    def attend(
        self, module: nn.Module, query: Tensor, key: Tensor, value: Tensor, options: Options
    ) -> Tensor:
        cache: LayerCache = vars(module)["paged_cache"]
        cache.write(self._layout.cache_rows, key, value)
        plain = options.softcap is None and options.sinks is None
        if self._varlen and plain and can_varlen(query, cache):
            return varlen_attention(
                self._layout.ragged, cache, query, scale=options.scale, window=options.window
            )
        parts = [
            self._attend_group(group, cache, query, key, value, options)
            for group in self._layout.groups(options.window)
        ]
        return (parts[0] if len(parts) == 1 else torch.cat(parts))[None]

    def _attend_group(
        self,
        group: Group,
        cache: LayerCache,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        options: Options,
    ) -> Tensor:
        """[queries, query heads, value dim]."""
        if group.blocks is None:
            key, value = key[:, :, group.queries], value[:, :, group.queries]
        else:
            key, value = cache.read(group.blocks, group.sequences, self._scratch, query.dtype)
            key, value = key[:, :, group.keys], value[:, :, group.keys]
        attend = _sdpa if options.softcap is None and options.sinks is None else _explicit
        if group.queries.stop - group.queries.start == group.sequences:
            return _decode(attend, query[0, :, group.queries], key, value, group, options)
        out = attend(query[:, :, group.queries], key, value, group, options)
        return out[0].transpose(0, 1)


_Attend = abc.Callable[[Tensor, Tensor, Tensor, Group, Options], Tensor]


def _decode(
    attend: _Attend, query: Tensor, key: Tensor, value: Tensor, group: Group, options: Options
) -> Tensor:
    """One query a sequence: those that share a key head take the place of queries in time."""
    heads, sequences, dim = query.shape
    grouped = query.transpose(0, 1).reshape(sequences, key.shape[1], -1, dim)
    return attend(grouped, key, value, group, options).reshape(sequences, heads, -1)


def _sdpa(query: Tensor, key: Tensor, value: Tensor, group: Group, options: Options) -> Tensor:
    return F.scaled_dot_product_attention(
        query,
        key,
        value,
        attn_mask=group.mask,
        is_causal=group.causal,
        scale=options.scale,
        enable_gqa=query.shape[1] != key.shape[1],
    )


def _explicit(query: Tensor, key: Tensor, value: Tensor, group: Group, options: Options) -> Tensor:
    """Attention with soft-capped scores and sinks, term by term."""
    batch, heads, count, dim = query.shape
    grouped = query.reshape(batch, key.shape[1], -1, dim)  # key head: its query heads' queries
    scale = dim**-0.5 if options.scale is None else options.scale
    scores = (grouped @ key.transpose(2, 3) * scale).view(batch, heads, count, -1)
    if options.softcap is not None:
        scores = torch.tanh(scores / options.softcap) * options.softcap
    if group.causal:
        above = torch.ones(count, count, dtype=torch.bool, device=query.device).triu_(1)
        scores = scores.masked_fill(above, float("-inf"))
    elif group.mask is not None:
        scores = scores + group.mask
    weights = _softmax_with_sinks(scores, options.sinks).to(value.dtype)
    mixed = weights.view(batch, key.shape[1], -1, key.shape[2]) @ value
    return mixed.view(batch, heads, count, -1)


def _softmax_with_sinks(scores: Tensor, sinks: Tensor | None) -> Tensor:
    if sinks is None:
        return torch.softmax(scores, -1, dtype=torch.float32)
    batch, heads, count, keys = scores.shape
    # After _decode the queries of a key head stand for its query heads.
    shape = (1, heads, count, 1) if sinks.numel() != heads else (1, heads, 1, 1)
    column = sinks.to(scores.dtype).view(shape).expand(batch, heads, count, 1)
    joined = torch.cat((scores, column), -1)
    return torch.softmax(joined, -1, dtype=torch.float32)[..., :keys]
