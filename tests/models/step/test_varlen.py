"""The kernel itself needs a GPU; its arguments do not."""

from __future__ import annotations

import inspect
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.attention.varlen import varlen_attn

from models.step import varlen
from models.step.cache import LayerCache
from models.step.layout import StepLayout
from models.step.placement import RaggedLayout
from models.step.probe import ProbeSpan
from models.step.varlen import can_varlen, varlen_attention
from tests.models.step.replaying import check_accepted

HALF = torch.bfloat16


def cache(device: str, dtype: torch.dtype = HALF, value_dim: int = 8) -> LayerCache:
    return LayerCache(torch.randn(9, 4, 2, 8 + value_dim, dtype=dtype, device=device), 8)


def test_the_installed_kernel_takes_the_arguments() -> None:
    """Through its shape inference, which runs without a device."""
    meta = torch.device("meta")
    spans = [ProbeSpan(2, 3, (4, 5)), ProbeSpan(8, 1, (1, 2, 3))]
    layout = StepLayout(spans, 4, torch.device("cpu"), HALF).ragged
    ragged = RaggedLayout(
        layout.query_starts.to(meta),
        layout.key_counts.to(meta),
        layout.block_table.to(meta),
        layout.max_queries,
        layout.max_keys,
    )
    query = torch.empty(1, 6, 4, 8, dtype=HALF, device=meta)
    for window in (None, 3):
        out = varlen_attention(ragged, cache("meta"), query, scale=0.3, window=window)
        assert out.shape == (1, 4, 6, 8)


SINGLE = [ProbeSpan(4, 1, (4, 5)), ProbeSpan(8, 1, (1, 2, 3)), ProbeSpan(0, 1, (7,))]
MIXED = [ProbeSpan(2, 3, (4, 5)), ProbeSpan(8, 1, (1, 2, 3)), ProbeSpan(0, 2, (7,))]


@pytest.mark.parametrize("spans", [SINGLE, MIXED], ids=["single queries", "mixed"])
@pytest.mark.parametrize("window", [None, 3, 9])
def test_what_the_arguments_say_is_what_sequences_see(
    window: int | None, spans: list[ProbeSpan], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A kernel written from its documentation gives, over them, attention over each past."""
    monkeypatch.setattr(varlen, "varlen_attn", documented)
    layout = StepLayout(spans, 4, torch.device("cpu"), torch.float32)
    pool = cache("cpu", torch.float32)
    query = torch.randn(1, 6, layout.tokens, 8)
    out = varlen_attention(layout.ragged, pool, query, scale=0.3, window=window)
    flat = 0
    for index in layout.order:
        span = spans[index]
        for position in range(span.start, span.start + span.count):
            first = 0 if window is None else max(0, position + 1 - window)
            places = [(span.blocks[p // 4], p % 4) for p in range(first, position + 1)]
            keys = torch.stack([pool.keys[place] for place in places], 1)
            values = torch.stack([pool.values[place] for place in places], 1)
            expected = _attend(query[0, :, flat], keys, values)
            torch.testing.assert_close(out[0, flat], expected)
            flat += 1


def _attend(query: Tensor, keys: Tensor, values: Tensor) -> Tensor:
    """[6, 8] over [2, n, 8]: heads 0-2 share the first key head, 3-5 the second."""
    grouped = query.view(2, 3, 8)
    return ((grouped @ keys.transpose(1, 2) * 0.3).softmax(-1) @ values).view(6, 8)


def documented(*args: Any, **kwargs: Any) -> Tensor:
    given = inspect.signature(varlen_attn).bind(*args, **kwargs)
    given.apply_defaults()
    a = given.arguments
    assert a["enable_gqa"]
    check_accepted(
        a["query"],
        a["key"],
        a["cu_seq_q"],
        a["cu_seq_k"],
        a["max_q"],
        a["window_size"],
        a["num_splits"],
    )
    left, _ = a["window_size"]
    out = torch.empty_like(a["query"])
    for i, used in enumerate(a["seqused_k"].tolist()):
        start, end = a["cu_seq_q"][i : i + 2].tolist()
        assert end - start <= a["max_q"]
        assert used <= a["max_k"]
        keys = a["key"][a["block_table"][i].long()].flatten(0, 1)[:used].transpose(0, 1)
        values = a["value"][a["block_table"][i].long()].flatten(0, 1)[:used].transpose(0, 1)
        for query in range(start, end):
            last = used - (end - query)  # aligned to the bottom right
            first = 0 if left < 0 else max(0, last - left)
            seen = slice(first, last + 1)
            out[query] = _attend(a["query"][query], keys[:, seen], values[:, seen])
    return out


@pytest.mark.parametrize(
    ("counts", "heads", "window", "visible", "splits"),
    [
        ((1, 1), 4, None, (-1, -1), None),
        ((1, 1), 4, 9, (-1, -1), None),  # a window that reaches the first key
        ((1, 1), 2, None, (-1, -1), 1),
        ((1, 1), 4, 3, (2, 0), 1),
        ((1, 2), 4, None, (-1, 0), 1),
    ],
)
def test_only_single_queries_that_share_keys_may_be_split(
    counts: tuple[int, ...],
    heads: int,
    window: int | None,
    visible: tuple[int, int],
    splits: int | None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    given: dict[str, Any] = {}

    def kernel(query: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        given.update(kwargs)
        return query

    monkeypatch.setattr(varlen, "varlen_attn", kernel)
    spans = [ProbeSpan(9 - count, count, (1, 2, 3)) for count in counts]
    layout = StepLayout(spans, 4, torch.device("cpu"), HALF)
    query = torch.empty(1, heads, layout.tokens, 8, dtype=HALF)
    varlen_attention(layout.ragged, cache("cpu"), query, scale=None, window=window)
    assert (given["window_size"], given["num_splits"]) == (visible, splits)


def test_what_the_kernel_cannot_do_is_left_to_others() -> None:
    query = torch.empty(1, 6, 4, 8, dtype=HALF)
    assert can_varlen(query, cache("cpu"))
    assert not can_varlen(query.float(), cache("cpu", torch.float32))
    assert not can_varlen(query, cache("cpu", value_dim=6))
