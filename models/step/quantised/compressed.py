"""What llm-compressor writes by compressed-tensors: integers, packed or not, and floats."""

from __future__ import annotations

from collections import abc
from functools import partial
from typing import Any

import torch
from torch import Tensor

from models.step.quantised.floats import fp4_numbers
from models.step.quantised.integers import in_groups
from models.step.quantised.layout import (
    BYTES,
    FLOATS,
    WORDS,
    Format,
    Layout,
    Parts,
    Stored,
    numbers,
    spread,
    unpacked,
)

SCALE, ZERO, PACKED = ".weight_scale", ".weight_zero_point", ".weight_packed"
SHAPE, PLACES, WHOLE = ".weight_shape", ".weight_g_idx", ".weight_global_scale"
UNREAD = tuple(
    f".{of}_{what}"
    for of in ("input", "output", "k", "v", "q")
    for what in ("scale", "zero_point", "global_scale")
)


def compressed_tensors(told: abc.Mapping[str, Any]) -> Format:
    groups = [group.get("weights") or {} for group in (told.get("config_groups") or {}).values()]
    blocks = {tuple(one.get("block_structure") or ()) for one in groups}
    [block] = blocks if len(blocks) == 1 else [()]
    whole = partial(_whole, block or None)
    # Where no group is symmetric, none may lack what its codes are counted from.
    always = (ZERO,) if groups and all(one.get("symmetric") is False for one in groups) else ()
    told_bits = {one["num_bits"] for one in groups if one.get("num_bits")}
    packed = partial(_packed, told_bits or {2, 4, 8})
    layouts = (
        Layout(PACKED, WORDS, (SCALE, SHAPE, *always), packed, (ZERO, PLACES)),
        Layout(PACKED, BYTES, (SCALE,), _packed_floats, (WHOLE,)),
        Layout(".weight", FLOATS | BYTES, (SCALE, *always), whole, (ZERO,)),
    )
    kinds = {one.get("type", "int"): one.get("num_bits") for one in groups}
    told_kinds = ", ".join(f"{kind}{bits}" for kind, bits in sorted(kinds.items()))
    return Format(f"compressed-tensors {told_kinds}", layouts, UNREAD)


def _whole(block: tuple[int, ...] | None, parts: Parts) -> Tensor:
    values = parts[".weight"].float()
    if ZERO in parts:
        values -= spread(parts[ZERO].float(), values.shape, block)
    return values.mul_(spread(numbers(parts[SCALE]), values.shape, block))


def _packed_floats(parts: Parts) -> Tensor:
    """NVFP4's scales, which are floats themselves, have one in common."""
    scales = numbers(parts[SCALE])
    if parts[SCALE].dtype != torch.float8_e4m3fn:
        return fp4_numbers(parts[PACKED], scales)
    if WHOLE not in parts:
        raise ValueError(f"scales are multiples of {WHOLE}, which is not there")
    return fp4_numbers(parts[PACKED], scales / parts[WHOLE], (16,))


def _packed(told: abc.Set[int], parts: Parts) -> Stored:
    """Codes are packed along inputs, and zero points along outputs."""
    outputs, inputs = parts[SHAPE].tolist()
    width = parts[PACKED].shape[1]
    bits = next((n for n in sorted(told) if -(-inputs * n // 32) == width), None)
    if bits is None:
        raise ValueError(f"{width} words a row do not hold {inputs} codes of {sorted(told)} bits")
    scales = parts[SCALE].expand(outputs, -1)
    zeros = torch.full_like(scales, 2 ** (bits - 1))
    if ZERO in parts:
        zeros = unpacked(parts[ZERO].T, bits).T[:outputs]
    return in_groups(
        unpacked(parts[PACKED], bits)[:, :inputs],
        scales,
        zeros,
        bits=bits,
        group=inputs // scales.shape[1],
        places=parts[PLACES].long() if PLACES in parts else None,
    )
