"""What a norm does to a row, told by what it does to three of them."""

from __future__ import annotations

import copy
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from models.step.native.build import NoNative
from models.step.native.library import NormWeights
from models.step.trace import Trace

# To the weight: what a norm that takes a row's mean away leaves of a row of ones.
MOST_CENTRE = 1e-4


@dataclass(frozen=True, slots=True)
class Norm:
    """``weight`` is what each number is multiplied by, whatever the module's own stands for."""

    weight: Tensor
    bias: Tensor
    together: int  # so many numbers of a row are brought to one size
    centred: bool
    epsilon: float

    @property
    def weights(self) -> NormWeights:
        """They point to these tensors."""
        return NormWeights(
            weight=self.weight.data_ptr(),
            bias=self.bias.data_ptr() if self.bias.any() else None,
            count=len(self.weight),
            together=self.together,
            centred=self.centred,
            epsilon=self.epsilon,
        )

    def in_order(self, order: Tensor) -> Norm:
        """With ``order`` within each head."""
        weight, bias = (
            t.view(-1, len(order))[:, order].flatten() for t in (self.weight, self.bias)
        )
        return Norm(weight, bias, self.together, self.centred, self.epsilon)


@torch.inference_mode()
def read_norm(module: nn.Module, trace: Trace) -> Norm:
    """Raises NoNative."""
    given, own = trace.given(module), next(module.parameters(), None)
    epsilon = getattr(module, "variance_epsilon", getattr(module, "eps", None))
    if given is None or own is None or epsilon is None:
        raise NoNative(f"they know no {type(module).__name__}")
    return norm_of(module, given.shape[-1], epsilon)


@torch.inference_mode()
def norm_of(module: nn.Module, together: int, epsilon: float) -> Norm:
    """For a module of one row's numbers, ``together`` of which it brings to one size."""
    whole = copy.deepcopy(module).float()
    ones = torch.ones_like(next(whole.parameters()))
    signs = ones.clone()
    signs[..., 1::2] = -1
    level, bias, changing = (whole(row[None])[0].flatten() for row in (ones, 0 * ones, signs))
    weight = (changing - bias) * signs.flatten() * (1 + epsilon) ** 0.5
    centred = bool((level - bias).norm() < MOST_CENTRE * weight.norm())
    return Norm(weight.contiguous(), bias.contiguous(), together, centred, epsilon)
