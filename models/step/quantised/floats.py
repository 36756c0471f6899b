"""Weights as floats of 8 or 4 bits with scales for rows, groups or blocks of them."""

from __future__ import annotations

from collections import abc
from functools import partial
from typing import Any

import torch
from torch import Tensor

from models.step.quantised.layout import (
    BYTES,
    FLOATS,
    Format,
    Layout,
    Parts,
    numbers,
    spread,
    unpacked,
)

POSITIVE = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)
FP4 = torch.tensor(POSITIVE + tuple(-number for number in POSITIVE))  # E2M1, by its code
FP4_GROUPS = (16, 32)  # NVFP4's, and MXFP4's


def fp8(told: abc.Mapping[str, Any]) -> Format:
    """DeepSeek's, of many models since: scales of blocks, or one of a whole matrix."""
    block = told.get("weight_block_size")
    layouts = (
        scaled("_scale_inv", block, codes=""),
        scaled(".scale", block),
        scaled(".qscale_weight", block),
    )
    return Format("fp8", layouts, ("activation_scale", ".qscale_act", ".input_scale"))


def fbgemm_fp8(told: abc.Mapping[str, Any]) -> Format:
    return Format("fp8", (scaled(".weight_scale"),), (".input_scale_ub",))


def scaled(scale: str, block: abc.Sequence[int] | None = None, codes: str = ".weight") -> Layout:
    """Numbers with a tensor of scales whose name ends with ``scale``."""
    read = partial(_scaled, codes, scale, block)
    return Layout(codes, FLOATS | BYTES, (scale,), read, weight=codes)


def mxfp4(told: abc.Mapping[str, Any]) -> Format:
    """gpt-oss's experts."""
    return Format("mxfp4", (Layout("_blocks", BYTES, ("_scales",), _experts, weight=""),))


def fp4_numbers(codes: Tensor, scales: Tensor, sizes: abc.Collection[int] = FP4_GROUPS) -> Tensor:
    """Of bytes that hold two numbers each, the lower half first; scales [..., groups].

    Raises ValueError if the scales are not of groups of one of these ``sizes``.
    """
    values = FP4[unpacked(codes, 4).int()]
    *rows, inputs = values.shape
    if list(scales.shape[:-1]) != rows or inputs not in (size * scales.shape[-1] for size in sizes):
        raise ValueError(f"scales {list(scales.shape)} do not fit codes {list(values.shape)}")
    groups = values.view(*scales.shape, -1)
    return groups.mul_(numbers(scales)[..., None]).flatten(-2)


def _scaled(codes: str, scale: str, block: abc.Sequence[int] | None, parts: Parts) -> Tensor:
    values, scales = parts[codes], numbers(parts[scale])
    if values.dtype == torch.int8:  # DeepSeek V4 holds experts so
        return fp4_numbers(values.view(torch.uint8), scales)
    return values.float().mul_(spread(scales, values.shape, block))


def _experts(parts: Parts) -> Tensor:
    """[experts, outputs, groups, 16] to [experts, inputs, outputs], each expert by itself.

    bfloat16 holds these numbers as they are.
    """
    blocks, scales = parts["_blocks"], parts["_scales"]
    experts, outputs, groups, octets = blocks.shape
    found = torch.empty(experts, groups * octets * 2, outputs, dtype=torch.bfloat16)
    for expert in range(experts):
        found[expert] = fp4_numbers(blocks[expert].flatten(-2), scales[expert]).T
    return found
