"""Adapters as the library reads them: for each layer the matrices beside its linear layers."""

from __future__ import annotations

from collections import abc

from transformers import PreTrainedModel

from models.step.adapters import Adapter
from models.step.native.blueprint import Blueprint
from models.step.native.build import NoNative
from models.step.native.gated import Gated
from models.step.native.layer import LayerParts
from models.step.native.library import AdapterWeights, LowRankWeights
from models.step.native.linear import Rows
from models.step.native.weights import Weights

Names = abc.Mapping[int, str]
"""Of modules, by their identity."""


class NativeAdapters:
    """Those of one model, which are known to fit its blueprint."""

    def __init__(
        self, adapters: abc.Sequence[Adapter], blueprint: Blueprint, model: PreTrainedModel
    ) -> None:
        """Raises NoNative for what stands beside other layers than the kernels adapt."""
        self._adapters = adapters
        names = {id(module): name for name, module in model.named_modules()}
        self._layers = [_named(layer, names) for layer in blueprint.layers]
        known = {name for layer in self._layers for name, _ in layer.values()}
        for adapter in adapters:
            if strange := sorted(adapter.parts.keys() - known):
                raise NoNative(f"they adapt no {strange[0]}, as {adapter.name!r} does")

    @property
    def places(self) -> dict[str | None, int]:
        """The library's number of each; -1 stands for none."""
        return {None: -1, **{one.name: i for i, one in enumerate(self._adapters)}}

    def weights(self, held: Weights) -> abc.Iterator[tuple[int, int, AdapterWeights]]:
        """Of each adapter and layer; good while ``held`` is."""
        for number, adapter in enumerate(self._adapters):
            for index, layer in enumerate(self._layers):
                parts = {kind: _low_rank(adapter, *named, held) for kind, named in layer.items()}
                yield number, index, AdapterWeights(**parts)

    def __len__(self) -> int:
        return len(self._adapters)


def _named(layer: LayerParts, names: Names) -> dict[str, tuple[str, Rows]]:
    """Its matrices that may be adapted, with the names of their modules."""
    rows = dict(layer.linears)
    half = layer.feed_forward
    if isinstance(half, Gated):
        rows |= {"gate": half.gate, "down": half.down}
        rows |= {} if half.up is None else {"up": half.up}
    return {kind: (names[id(own.linear)], own) for kind, own in rows.items()}


def _low_rank(adapter: Adapter, name: str, rows: Rows, held: Weights) -> LowRankWeights:
    part = adapter.parts.get(name)
    if part is None:
        return LowRankWeights()
    return LowRankWeights(
        inner=held.given(part.inner),
        outer=held.given(part.outer[rows.picked].contiguous()),
        rank=len(part.inner),
        scale=part.scale,
    )
