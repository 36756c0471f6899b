"""Linear layers, and parts of them."""

from __future__ import annotations

from collections import abc
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from models.step.grouped import GroupedLinear, GroupedWeight

LINEARS = (nn.Linear, GroupedLinear)


@dataclass(frozen=True, slots=True)
class Rows:
    """Some outputs of a linear layer, in an order of their own."""

    linear: nn.Linear | GroupedLinear
    picked: slice | Tensor = field(default_factory=lambda: slice(None))

    @property
    def shape(self) -> tuple[int, int]:
        """Outputs, inputs."""
        return len(torch.arange(self.linear.out_features)[self.picked]), self.linear.in_features

    @property
    def weight(self) -> Tensor | GroupedWeight:
        """[outputs, inputs]"""
        if isinstance(self.linear, GroupedLinear):
            return self.linear.grouped[self.picked]
        return self.linear.weight.detach()[self.picked]

    @property
    def bias(self) -> Tensor | None:
        bias: Tensor | None = self.linear.bias
        return None if bias is None else bias.detach()[self.picked]

    def reordered(self, order: Tensor) -> Rows:
        return Rows(self.linear, torch.arange(self.linear.out_features)[self.picked][order])


def rows_of(
    part: nn.Module, names: abc.Mapping[str, tuple[str, ...]], kept: int | None = None
) -> dict[str, Rows]:
    """Those of its layers among ``names``, by the matrices whose outputs each has.

    Of several all but the first have ``kept`` outputs, or all have as many.
    """
    found: dict[str, Rows] = {}
    for name, linear in part.named_children():
        kinds = names.get(name, ())
        if not kinds or not isinstance(linear, LINEARS):
            continue
        size = linear.out_features // len(kinds) if kept is None else kept
        ends = range(linear.out_features - (len(kinds) - 1) * size, linear.out_features + 1, size)
        starts = (0, *ends)
        for kind, start, end in zip(kinds, starts, ends, strict=False):
            found[kind] = Rows(linear, slice(start, end) if len(kinds) > 1 else slice(None))
    return found
