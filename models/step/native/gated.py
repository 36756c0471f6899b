"""A feed-forward, gated or not, and what it does between its matrices, read off its modules."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
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
    "input_linear": ("gate", "up"),
    "output_linear": ("down",),
    "fc1": ("gate",),
    "fc2": ("down",),
    "c_fc": ("gate",),
    "c_proj": ("down",),
    "dense_h_to_4h": ("gate",),
    "dense_4h_to_h": ("down",),
}


class Curve(IntEnum):
    SIGMOID = 0
    GELU_TANH = 1
    GELU = 2
    RELU_SQUARED = 3


CURVES = {
    "silu": Curve.SIGMOID,
    "swish": Curve.SIGMOID,
    "gelu_pytorch_tanh": Curve.GELU_TANH,
    "gelu_new": Curve.GELU_TANH,
    "gelu": Curve.GELU,
    "relu2": Curve.RELU_SQUARED,
}
LIMITS = ("limit", "swiglu_limit")


@dataclass(frozen=True, slots=True)
class Activation:
    """curve(gate) * up; for the sigmoid gate * sigmoid(slope * gate) * (up + shift).

    The latter of numbers that are cut off at ``limit``.
    """

    curve: Curve = Curve.SIGMOID
    slope: float = 1.0
    limit: float = torch.inf
    shift: float = 0.0

    def __call__(self, gate: Tensor, up: Tensor) -> Tensor:
        if self.curve == Curve.RELU_SQUARED:
            return gate.relu().square() * up
        if self.curve != Curve.SIGMOID:
            by = "tanh" if self.curve == Curve.GELU_TANH else "none"
            return nn.functional.gelu(gate, approximate=by) * up
        gate, up = gate.clamp(max=self.limit), up.clamp(-self.limit, self.limit)
        return gate * (self.slope * gate).sigmoid() * (up + self.shift)


@dataclass(frozen=True, slots=True)
class Gated:
    """down(activation(gate(x), up(x))), up(x) being 1 where nothing gates."""

    gate: Rows
    up: Rows | None
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
        return (self.gate, self.down) if self.up is None else (self.gate, self.up, self.down)

    @property
    def stacked(self) -> int:
        """Numbers of matrices that are several in one tensor."""
        return 0


def read_gated(part: nn.Module, activation: Activation, hidden: int) -> Gated:
    """Raises NoNative."""
    rows = rows_of(part, LAYERS)
    known = {id(p) for row in rows.values() for p in row.linear.parameters()}
    down, gate, up = (rows.get(name) for name in ("down", "gate", "up"))
    gate, up = (up, None) if gate is None else (gate, up)
    if down is None or gate is None or {id(p) for p in part.parameters()} - known:
        raise NoNative(f"{type(part).__name__} has other parts than they know")
    gated = Gated(gate, up, down, activation)
    wide, narrow = (gated.inner, hidden), (hidden, gated.inner)
    if {gate.shape, (up or gate).shape} != {wide} or down.shape != narrow:
        raise NoNative("its layers have other shapes than they know")
    if gated.inner % LANES:
        raise NoNative(f"layers of {gated.inner} numbers are not made of {LANES}")
    return gated


def activation_named(name: str) -> Activation:
    """Raises NoNative."""
    if name not in CURVES:
        raise NoNative(f"its activation is {name}")
    return Activation(CURVES[name])


@torch.inference_mode()
def activation_of(experts: Any) -> Activation:
    """Told by what it makes of a few numbers. Raises NoNative."""
    grid = torch.meshgrid(torch.linspace(-20, 20, 81), torch.linspace(-20, 20, 61), indexing="ij")
    gate, up = (numbers.flatten() for numbers in grid)
    both = torch.cat((gate, up)) if experts.is_concatenated else torch.stack((gate, up), -1)
    given = experts._apply_gate(both.view(1, -1))[0]
    slopes = {1.0, float(getattr(experts, "alpha", 1.0))}
    limits = [torch.inf, *(getattr(experts, name) for name in LIMITS if hasattr(experts, name))]
    known = (Activation(Curve.SIGMOID, *parts) for parts in product(slopes, limits, (0.0, 1.0)))
    for activation in (*known, *map(Activation, Curve)):
        if torch.allclose(activation(gate, up), given, rtol=1e-4, atol=1e-5):
            return activation
    raise NoNative(f"{type(experts).__name__} have an activation that they do not know")
