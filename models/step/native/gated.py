"""A gated feed-forward, and what it does between its matrices, read off its modules."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from typing import Any

import torch
from torch import Tensor, nn

from models.step.native.build import NoNative
from models.step.native.library import LANES
from models.step.native.linear import Rows, rows_of

# The matrices that the outputs of each linear layer are of, one after the other.
LAYERS = {
    "gate_proj": ("gate",),
    "up_proj": ("up",),
    "gate_up_proj": ("gate", "up"),
    "down_proj": ("down",),
}
GELUS = ("gelu_pytorch_tanh", "gelu_new")
SILUS = ("silu", "swish")
LIMITS = ("limit", "swiglu_limit")


@dataclass(frozen=True, slots=True)
class Activation:
    """gelu(gate) * up, by tanh; or gate * sigmoid(slope * gate) * (up + shift).

    The latter of numbers that are cut off at ``limit``.
    """

    gelu: bool = False
    slope: float = 1.0
    limit: float = torch.inf
    shift: float = 0.0

    def __call__(self, gate: Tensor, up: Tensor) -> Tensor:
        if self.gelu:
            return nn.functional.gelu(gate, approximate="tanh") * up
        gate, up = gate.clamp(max=self.limit), up.clamp(-self.limit, self.limit)
        return gate * (self.slope * gate).sigmoid() * (up + self.shift)


@dataclass(frozen=True, slots=True)
class Gated:
    """down(activation(gate(x), up(x)))."""

    gate: Rows
    up: Rows
    down: Rows
    activation: Activation

    @property
    def inner(self) -> int:
        return self.down.shape[1]

    @property
    def activations(self) -> tuple[Activation, ...]:
        return (self.activation,)

    @property
    def linears(self) -> tuple[Rows, ...]:
        return self.gate, self.up, self.down

    @property
    def stacked(self) -> int:
        """Numbers of matrices that are several in one tensor."""
        return 0


def read_gated(part: nn.Module, activation: Activation, hidden: int) -> Gated:
    """Raises NoNative."""
    rows = rows_of(part, LAYERS)
    known = {id(p) for row in rows.values() for p in row.linear.parameters()}
    if rows.keys() != {"gate", "up", "down"} or {id(p) for p in part.parameters()} - known:
        raise NoNative(f"{type(part).__name__} has other parts than they know")
    gated = Gated(**rows, activation=activation)
    wide, narrow = (gated.inner, hidden), (hidden, gated.inner)
    if (gated.gate.shape, gated.up.shape, gated.down.shape) != (wide, wide, narrow):
        raise NoNative("its layers have other shapes than they know")
    if gated.inner % LANES:
        raise NoNative(f"layers of {gated.inner} numbers are not made of {LANES}")
    return gated


def activation_named(name: str) -> Activation:
    """Raises NoNative."""
    if name not in (*GELUS, *SILUS):
        raise NoNative(f"its activation is {name}")
    return Activation(gelu=name in GELUS)


@torch.inference_mode()
def activation_of(experts: Any) -> Activation:
    """Told by what it makes of a few numbers. Raises NoNative."""
    grid = torch.meshgrid(torch.linspace(-20, 20, 81), torch.linspace(-20, 20, 61), indexing="ij")
    gate, up = (numbers.flatten() for numbers in grid)
    both = torch.cat((gate, up)) if experts.is_concatenated else torch.stack((gate, up), -1)
    given = experts._apply_gate(both.view(1, -1))[0]
    slopes = {1.0, float(getattr(experts, "alpha", 1.0))}
    limits = [torch.inf, *(getattr(experts, name) for name in LIMITS if hasattr(experts, name))]
    known = (Activation(False, *parts) for parts in product(slopes, limits, (0.0, 1.0)))
    for activation in (*known, Activation(gelu=True)):
        if torch.allclose(activation(gate, up), given, rtol=1e-4, atol=1e-5):
            return activation
    raise NoNative(f"{type(experts).__name__} have an activation that they do not know")
