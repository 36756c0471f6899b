from __future__ import annotations

from collections import abc

import pytest
import torch
from torch import Tensor, nn

from models.step.native.norms import norm_of
from tests.models.step.tiny import tiny

EPSILON = 1e-3


class OnePlus(nn.RMSNorm):
    """By one more than its weight."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) / self.weight * (1 + self.weight)


def by_hand(x: Tensor, weight: Tensor, bias: Tensor, *, centred: bool) -> Tensor:
    x = x - x.mean(-1, True) if centred else x
    return x * (x.square().mean(-1, True) + EPSILON).rsqrt() * weight + bias


@pytest.mark.parametrize(
    ("made", "centred"),
    [
        (lambda: nn.RMSNorm(64, EPSILON), False),
        (lambda: OnePlus(64, EPSILON), False),
        (lambda: nn.LayerNorm(64, EPSILON), True),
        (lambda: nn.LayerNorm(64, EPSILON, bias=False), True),
    ],
)
def test_what_a_norm_does_is_read(made: abc.Callable[[], nn.Module], centred: bool) -> None:
    torch.manual_seed(0)
    module = made()
    for parameter in module.parameters():
        nn.init.normal_(parameter)
    read = norm_of(module, 64, EPSILON)
    assert read.centred == centred
    x = torch.randn(3, 64)
    torch.testing.assert_close(by_hand(x, read.weight, read.bias, centred=centred), module(x))


def test_a_weight_is_not_rounded_with_what_it_is_stored_beside() -> None:
    """Gemma's norms multiply by 1 + weight, which bfloat16 may not hold."""
    norm = tiny("gemma", dtype=torch.bfloat16).model.norm
    norm.weight.data.uniform_(0.01, 0.02)
    read = norm_of(norm, 32, norm.eps)
    torch.testing.assert_close(read.weight, 1 + norm.weight.data.float())
