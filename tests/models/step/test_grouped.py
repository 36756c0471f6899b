from __future__ import annotations

import pytest
import torch

from models.step.grouped import GroupedLinear, GroupedWeight, dequantised, grouped


def weight(outputs: int, inputs: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(inputs)
    return torch.randn(outputs, inputs, generator=generator) * 0.02


def test_each_number_is_its_code_beside_the_zero_times_the_scale() -> None:
    codes = torch.tensor([[0, 15, 3, 8, 1]], dtype=torch.uint8)
    scales, zeros = torch.tensor([[2.0, 0.5, 1.0]]), torch.tensor([[8.0, 7.5, 0.0]])
    made = GroupedWeight(codes, scales, zeros, 2)
    assert dequantised(made).tolist() == [[-16.0, 14.0, -2.25, 0.25, 1.0]]


@pytest.mark.parametrize("inputs", [64, 96, 100, 7])
@pytest.mark.parametrize("group", [32, 64])
def test_a_rounded_weight_is_near(inputs: int, group: int) -> None:
    exact = weight(50, inputs)
    made = grouped(exact, group)
    assert made.codes.shape == exact.shape
    assert int(made.codes.max()) == 15
    error = (dequantised(made) - exact).norm() / exact.norm()
    assert 0.01 < error < 0.1


def test_what_four_bits_hold_loses_nothing() -> None:
    once = dequantised(grouped(weight(9, 128), 32))
    assert torch.equal(dequantised(grouped(once, 32)), once)


def test_zeros_stay_zeros() -> None:
    assert dequantised(grouped(torch.zeros(3, 64), 32)).count_nonzero() == 0


def test_a_layer_computes_with_what_its_codes_stand_for() -> None:
    linear = torch.nn.Linear(96, 40)
    made = GroupedLinear(grouped(linear.weight, 32), linear.bias.detach())
    values = torch.randn(2, 5, 96)
    linear.weight.data = dequantised(made.grouped)
    assert torch.equal(made(values), linear(values))
    assert made.bfloat16()(values.bfloat16()).dtype == torch.bfloat16
