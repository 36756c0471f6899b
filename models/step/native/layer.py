"""One layer of a model as facts that do not depend on each other, read off what it was seen to do.

x += r * behind(o(attention(q, k, v of norm(x)))); x += r * inner_behind(down(act(gate) * up)),
gate and up being of inner_norm(x), or, where ``parallel``, of what x was before attention.
"""

from __future__ import annotations

from collections import abc
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from models.step.attention import Options
from models.step.native.build import NoNative
from models.step.native.experts import Experts
from models.step.native.gated import Gated
from models.step.native.linear import Rows, rows_of
from models.step.native.norms import Norm, read_norm
from models.step.native.rotation import Rotary, Turn, halves_of_pairs, told, turn_between
from models.step.trace import Attended, Trace, same

Half = Gated | Experts
# The matrices that the outputs of each linear layer are of, one after the other.
ATTENTION = {
    "q_proj": ("q",),
    "k_proj": ("k",),
    "v_proj": ("v",),
    "qkv_proj": ("q", "k", "v"),
    "query_key_value": ("q", "k", "v"),
    "o_proj": ("o",),
    "dense": ("o",),
}
HEAD_NORMS = {
    "q_norm": "q_norm",
    "k_norm": "k_norm",
    "query_layernorm": "q_norm",
    "key_layernorm": "k_norm",
}


@dataclass(frozen=True, slots=True)
class LayerParts:
    """One layer's modules, and how it attends."""

    linears: abc.Mapping[str, Rows]  # of its attention
    feed_forward: Half
    norms: abc.Mapping[str, Norm]
    options: Options
    rotary: Rotary | None  # None: positions mean nothing to it
    norms_last: bool  # of queries and keys: once they are rotated
    parallel: bool


class LayerReader:
    """Reads the layers of one model."""

    def __init__(
        self, trace: Trace, known: abc.Sequence[Rotary], read_half: abc.Callable[[nn.Module], Half]
    ) -> None:
        """``read_half`` reads the feed-forward half."""
        self._trace = trace
        self._known = known
        self._read_half = read_half

    def read(self, layer: nn.Module, attended: Attended) -> LayerParts:
        """Raises NoNative."""
        if attended.options.scale is None:
            raise NoNative("it does not say how it scales its scores")
        attention, feed_forward = _halves(layer, attended.module)
        linears = _attention_rows(attention, attended)
        head_norms = {HEAD_NORMS[n]: m for n, m in attention.named_children() if n in HEAD_NORMS}
        around = self._norms(layer, attention, feed_forward)
        modules = {**around, **head_norms}
        _require_all_known(layer, feed_forward, linears, modules, attended.options.sinks)
        norms = {name: read_norm(module, self._trace) for name, module in modules.items()}
        turn = self._turn(attended, linears["q"], head_norms.get("q_norm"))
        parallel = self._parallel(layer, feed_forward, around)
        if turn is not None and turn.pairs:
            order = halves_of_pairs(attended.query.shape[-1], turn.dims)
            linears |= {name: _by_head(linears[name], order) for name in ("q", "k")}
            norms |= {name: norms[name].in_order(order) for name in head_norms}
        if parallel and {"behind", "inner_behind"} & set(around):
            raise NoNative("its halves are side by side, with norms behind")
        return LayerParts(
            linears,
            self._read_half(feed_forward),
            norms,
            attended.options,
            None if turn is None else turn.rotary,
            self._norms_last(linears["q"], head_norms.get("q_norm")),
            parallel,
        )

    def _norms(
        self, layer: nn.Module, attention: nn.Module, feed_forward: nn.Module
    ) -> dict[str, nn.Module]:
        """Those around its halves, by where they stand."""
        trace = self._trace
        found: dict[str, nn.Module] = {}
        for norm in layer.children():
            if norm in (attention, feed_forward) or not [*norm.parameters()]:
                continue
            given, returned = trace.given(norm), trace.returned(norm)
            places = {
                "norm": same(returned, trace.given(attention)),
                "behind": same(given, trace.returned(attention)),
                "inner_norm": same(returned, trace.given(feed_forward)),
                "inner_behind": same(given, trace.returned(feed_forward)),
            }
            found |= {name: norm for name, stands in places.items() if stands}
        return found

    def _turn(self, attended: Attended, q: Rows, norm: nn.Module | None) -> Turn | None:
        heads, dim = attended.query.shape[1], attended.query.shape[-1]
        projected = self._trace.returned(q.linear)
        assert projected is not None
        before = projected[..., q.picked]
        after = attended.query[0].transpose(0, 1)
        if norm is not None and self._norms_last(q, norm):
            after = _tokens_first(self._trace.given(norm), heads, dim)
        elif norm is not None:
            before = _tokens_first(self._trace.returned(norm), heads, dim)
        known = told(self._trace.calls(attended.module)[-1], self._known)
        return turn_between(before.reshape(-1, heads, dim), after, known)

    def _norms_last(self, q: Rows, norm: nn.Module | None) -> bool:
        if norm is None:
            return False
        return not same(self._trace.given(norm), self._trace.returned(q.linear))

    def _parallel(
        self, layer: nn.Module, feed_forward: nn.Module, norms: abc.Mapping[str, nn.Module]
    ) -> bool:
        """Whether the feed-forward half reads what attention read, not what it added."""
        read = norms.get("inner_norm", feed_forward)
        return same(self._trace.given(read), self._trace.given(layer))


def _tokens_first(heads: Tensor | None, count: int, dim: int) -> Tensor:
    """[tokens, heads, dim], whichever of the two came first, or both in one."""
    assert heads is not None
    first = heads.dim() == 4 and heads.shape[1] == count
    return (heads.transpose(1, 2) if first else heads).reshape(-1, count, dim)


def _halves(layer: nn.Module, attention: nn.Module) -> tuple[nn.Module, nn.Module]:
    """Its attention, and the other child that is not a norm."""
    others = [part for part in layer.children() if part is not attention and [*part.children()]]
    others = [part for part in others if [*part.parameters()]]
    if attention not in layer.children() or len(others) != 1:
        raise NoNative(f"{type(layer).__name__} does not attend and feed forward in two parts")
    return attention, others[0]


def _require_all_known(
    layer: nn.Module,
    feed_forward: nn.Module,
    linears: abc.Mapping[str, Rows],
    norms: abc.Mapping[str, nn.Module],
    sinks: Tensor | None,
) -> None:
    kinds = {kind for kinds in ATTENTION.values() for kind in kinds}
    parts = [feed_forward, *(rows.linear for rows in linears.values()), *norms.values()]
    known = {id(parameter) for part in parts for parameter in part.parameters()}
    known.add(id(sinks))
    if kinds != set(linears) or any(id(p) not in known for p in layer.parameters()):
        raise NoNative(f"{type(layer).__name__} has other parts than they know")


def _attention_rows(attention: nn.Module, attended: Attended) -> dict[str, Rows]:
    """One linear layer may have all three, one after the other, or for each head."""
    heads, dim = attended.value.shape[1], attended.value.shape[3]
    rows = rows_of(attention, ATTENTION, heads * dim)
    if "v" in rows and attended.value.stride(1) == 3 * dim:
        fused = rows["v"].linear
        places = torch.arange(fused.out_features).view(-1, 3, dim)
        rows |= {name: Rows(fused, places[:, at].flatten()) for at, name in enumerate("qkv")}
    return rows


def _by_head(rows: Rows, order: Tensor) -> Rows:
    """With ``order`` within each head."""
    places = torch.arange(rows.shape[0])
    return rows.reordered(places.view(-1, len(order))[:, order].flatten())
