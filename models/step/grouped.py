"""Weights in 4 bits: codes of 0 to 15, and a scale and a zero for each group of an output's inputs.

Checkpoints come in this form, and ``dtype: int4`` rounds to it.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

MOST = 15  # the largest code
ZERO_UNIT = 256  # zeros are in 256ths
LEAST_SCALE = 1e-7  # that half precision holds
NUMBERS_AT_ONCE = 1 << 20
SHRINKS = (1.0, 0.95, 0.9, 0.85, 0.8, 0.75, 0.7)


@dataclass(frozen=True, slots=True)
class GroupedWeight:
    """``weight[o, i]`` is ``scales[o, i // group] * (codes[o, i] - zeros[o, i // group])``."""

    codes: Tensor  # uint8 [outputs, inputs]
    scales: Tensor  # float32 [outputs, groups]
    zeros: Tensor  # float32 [outputs, groups], in units of codes, not always whole
    group: int  # inputs; an output's last group may have fewer

    def __post_init__(self) -> None:
        outputs, inputs = self.codes.shape
        assert self.codes.dtype == torch.uint8
        assert self.scales.dtype == self.zeros.dtype == torch.float32
        assert self.scales.shape == self.zeros.shape == (outputs, -(-inputs // self.group))

    def __getitem__(self, outputs: slice | Tensor) -> GroupedWeight:
        codes, scales, zeros = self.codes[outputs], self.scales[outputs], self.zeros[outputs]
        return GroupedWeight(codes, scales, zeros, self.group)

    @property
    def nbytes(self) -> int:
        return self.codes.nbytes + self.scales.nbytes + self.zeros.nbytes


def dequantised(weight: GroupedWeight) -> Tensor:
    """float32 [outputs, inputs]."""
    inputs = weight.codes.shape[1]
    scales, zeros = (
        values.repeat_interleave(weight.group, 1)[:, :inputs]
        for values in (weight.scales, weight.zeros)
    )
    return (weight.codes - zeros) * scales


def grouped(weight: Tensor, group: int) -> GroupedWeight:
    """``weight`` [outputs, inputs] rounded, with scales of half precision.

    Of the ranges that clip a group's extremes a little or not, the one whose numbers are nearest.
    """
    outputs, inputs = weight.shape
    parts = torch.split(weight.detach(), max(1, NUMBERS_AT_ONCE // inputs))
    found = [_nearest(_in_groups(part.float(), group)) for part in parts]
    codes, scales, zeros = (torch.cat(values) for values in zip(*found, strict=True))
    return GroupedWeight(codes.view(outputs, -1)[:, :inputs].contiguous(), scales, zeros, group)


def _in_groups(rows: Tensor, group: int) -> Tensor:
    """[rows, groups, group]; behind a row's end its last number is repeated."""
    lacking = -rows.shape[1] % group
    padded = torch.cat([rows, rows[:, -1:].expand(-1, lacking)], 1)
    return padded.view(len(rows), -1, group)


def _nearest(values: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Codes [rows, groups, group] of ``values``, and scales and zeros [rows, groups]."""
    errors = [_squared_error(values, *_fitted(values, torch.tensor(s))) for s in SHRINKS]
    best = torch.tensor(SHRINKS)[torch.stack(errors).argmin(0)]
    codes, scales, zeros = _fitted(values, best)
    return codes.to(torch.uint8), scales[..., 0], zeros[..., 0]


def _fitted(values: Tensor, shrink: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Codes, scales and zeros [rows, groups, 1] for so much of each group's range."""
    low = shrink * values.amin(-1, True).clamp_max(0)
    high = shrink * values.amax(-1, True).clamp_min(0)
    scales = ((high - low) / MOST).clamp_min(LEAST_SCALE).half().float()
    zeros = (-low / scales * ZERO_UNIT).round() / ZERO_UNIT
    return (values / scales + zeros).round().clamp(0, MOST), scales, zeros


def _squared_error(values: Tensor, codes: Tensor, scales: Tensor, zeros: Tensor) -> Tensor:
    return ((codes - zeros) * scales - values).square().sum(-1, True)


def ungroup(model: PreTrainedModel) -> bool:
    """Linear layers in the place of grouped ones, one by one; whether there were any."""
    dtype = model.dtype
    names = [name for name, layer in model.named_modules() if isinstance(layer, GroupedLinear)]
    for name in names:
        layer = model.get_submodule(name)
        assert isinstance(layer, GroupedLinear)
        linear = nn.Linear(layer.in_features, layer.out_features, bias=False, device="meta")
        linear.weight = nn.Parameter(dequantised(layer.grouped).to(dtype), requires_grad=False)
        linear.register_parameter("bias", layer.bias)
        model.set_submodule(name, linear)
    return bool(names)


class GroupedLinear(nn.Module):
    """In place of ``nn.Linear``. The native kernels take its codes as they are."""

    def __init__(self, weight: GroupedWeight, bias: Tensor | None) -> None:
        super().__init__()
        self.codes = nn.Parameter(weight.codes, requires_grad=False)
        self.scales, self.zeros = weight.scales, weight.zeros  # of no other type than they are
        self.group = weight.group
        self.bias = bias if bias is None else nn.Parameter(bias, requires_grad=False)
        self.out_features, self.in_features = weight.codes.shape

    @property
    def grouped(self) -> GroupedWeight:
        return GroupedWeight(self.codes.detach(), self.scales, self.zeros, self.group)

    def forward(self, values: Tensor) -> Tensor:
        weight = dequantised(self.grouped).to(values.dtype)
        return nn.functional.linear(values, weight, self.bias)
