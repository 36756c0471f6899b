"""Decoding by graphs on a CPU: torch's attention kernel from its documentation, and a capture.

``Replays`` does what CUDA graphs do: it notes every operation with the very tensors it read and
wrote, and runs only those again. Whatever Python decided meanwhile is as it was when recorded.
"""

from __future__ import annotations

from collections import abc
from typing import Any, TypeVar

import torch
from torch import Tensor
from torch.nn.attention.varlen import _varlen_attn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from transformers import PreTrainedModel

from models.step.attention import PAGED
from models.step.cache import allocate
from models.step.capture import Replay
from models.step.model import Capacity
from models.step.paged import PagedForward, PagedModel
from models.step.trace import Trace

T = TypeVar("T")
BLOCK = 4


class Replays:
    """A ``Capture``."""

    note = ""

    def record(self, run: abc.Callable[[], T]) -> tuple[T, Replay]:
        run()
        with _Noted() as noted:
            result = run()
        return result, noted.replay

    def memory_used(self) -> int:
        return 0


class _Noted(TorchDispatchMode):  # type: ignore[no-untyped-call]
    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._calls: list[tuple[Any, Any, Any, Any]] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        made = func(*args, **(kwargs or {}))
        self._calls.append((func, args, kwargs or {}, made))
        return made

    def replay(self) -> None:
        for func, args, kwargs, made in self._calls:
            again = func(*args, **kwargs)
            for old, new in zip(tree_leaves(made), tree_leaves(again), strict=True):
                if isinstance(old, Tensor) and old.data_ptr() != new.data_ptr():
                    old.copy_(new)


def graphed(
    model: PreTrainedModel, *, slots: int = 6, blocks: int = 80, graphs: bool = True
) -> PagedModel:
    """The model over the variable-length kernel, in blocks of ``BLOCK``, decoding by graphs."""
    model.set_attn_implementation(PAGED)
    allocate(Trace(model).layers, blocks + 1, BLOCK, model.device)
    forward = PagedForward(model, BLOCK, varlen=True)
    context = min(128, blocks * BLOCK)
    vocab_size = model.config.get_text_config().vocab_size
    capacity = Capacity(context, vocab_size, slots, blocks, BLOCK, prefix_cache=True)
    paged = PagedModel(model.device, capacity, forward, {})
    if graphs:
        paged.record_decoding(Replays())
    return paged


@_varlen_attn.register_kernel("cpu")
def _documented(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    cu_seq_q: Tensor,
    cu_seq_k: Tensor | None,
    max_q: int,
    max_k: int,
    is_causal: bool = False,
    scale: float | None = None,
    window_size: list[int] | None = None,
    enable_gqa: bool = False,
    seqused_k: Tensor | None = None,
    block_table: Tensor | None = None,
    num_splits: int | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """One query after the other, each over its own keys."""
    assert enable_gqa
    assert seqused_k is not None
    assert block_table is not None
    check_accepted(query, key, cu_seq_q, cu_seq_k, max_q, window_size or [-1, -1], num_splits)
    left, right = window_size or (-1, -1)
    assert is_causal == (right == 0 and left < 0)
    out = torch.empty_like(query)
    for i, used in enumerate(seqused_k.tolist()):
        start, end = cu_seq_q[i : i + 2].tolist()
        assert end - start <= max_q
        assert used <= max_k
        blocks = block_table[i, : -(-used // key.shape[1])].long()
        keys, values = (pool[blocks].flatten(0, 1)[:used].transpose(0, 1) for pool in (key, value))
        for at in range(start, end):
            last = used - (end - at)  # aligned to the bottom right
            seen = slice(0 if left < 0 else max(0, last - left), last + 1)
            out[at] = _attend(query[at], keys[:, seen], values[:, seen], scale)
    empty = query.new_empty(0)
    return out, empty, empty.clone()


def check_accepted(
    query: Tensor,
    key: Tensor,
    cu_seq_q: Tensor,
    cu_seq_k: Tensor | None,
    max_q: int,
    window: abc.Sequence[int],
    num_splits: int | None,
) -> None:
    """What the kernel that torch 2.13 ships for CUDA refuses, or computes wrong."""
    assert cu_seq_k is not None, "it wants both cumulative lengths or none"
    assert cu_seq_k.dtype == cu_seq_q.dtype == torch.int32
    assert cu_seq_k.shape == cu_seq_q.shape
    assert window[1] == 0 or (max_q == 1 and tuple(window) == (-1, -1)), "it sees what comes later"
    packs = max_q == 1 and query.shape[1] > key.shape[2] and tuple(window) == (-1, -1)
    assert num_splits == 1 or packs, "it writes the rows of the first sequence only"


def _attend(query: Tensor, keys: Tensor, values: Tensor, scale: float | None) -> Tensor:
    """[heads, dim] over [key heads, n, dim]."""
    grouped = query.view(keys.shape[0], -1, query.shape[1])
    scores = grouped @ keys.transpose(1, 2) * (query.shape[1] ** -0.5 if scale is None else scale)
    return (scores.softmax(-1) @ values).view_as(query)
