"""bitsandbytes' weights: 4 bits that number the entries of a table, or 8 with a scale a row."""

from __future__ import annotations

import json
from collections import abc
from typing import Any

import torch
from torch import Tensor

from models.step.quantised.layout import BYTES, Format, Layout, Parts

ABSMAX, TABLE = ".weight.absmax", ".weight.quant_map"
NESTED, NESTED_TABLE = ".weight.nested_absmax", ".weight.nested_quant_map"
STATES = tuple(f".weight.quant_state.bitsandbytes__{kind}" for kind in ("nf4", "fp4"))


def bitsandbytes(told: abc.Mapping[str, Any]) -> Format:
    if told.get("load_in_8bit"):
        layout = Layout(".weight", BYTES, (".SCB",), _rows)
        return Format("bitsandbytes, 8 bits", (layout,), (".weight_format",))
    layouts = tuple(
        Layout(".weight", BYTES, (ABSMAX, TABLE, state), _blocks, (NESTED, NESTED_TABLE))
        for state in STATES
    )
    return Format(f"bitsandbytes, {told.get('bnb_4bit_quant_type') or '4 bits'}", layouts)


def _rows(parts: Parts) -> Tensor:
    codes, scales = parts[".weight"], parts[".SCB"]
    if scales.shape != codes.shape[:1]:
        raise ValueError(f"scales {list(scales.shape)} do not fit weights {list(codes.shape)}")
    return codes.float().mul_((scales / 127)[:, None])


def _blocks(parts: Parts) -> Tensor:
    """A flat run of codes, the upper half of a byte first, with a scale for each block of it."""
    state = json.loads(next(bytes(parts[name].tolist()) for name in STATES if name in parts))
    octets = parts[".weight"].flatten()
    codes = torch.stack([octets >> 4, octets & 15], -1).flatten()
    scales = parts[ABSMAX]
    if not scales.is_floating_point() and NESTED not in parts:
        raise ValueError(f"scales are codes, and {NESTED} is not there")
    if NESTED in parts:
        scales = _times(parts[NESTED_TABLE][scales.int()], parts[NESTED], state["nested_blocksize"])
        scales += state["nested_offset"]
    count = torch.Size(state["shape"]).numel()
    return _times(parts[TABLE][codes.int()][:count], scales, state["blocksize"]).view(
        state["shape"]
    )


def _times(values: Tensor, scales: Tensor, block: int) -> Tensor:
    if len(scales) != -(-len(values) // block):
        raise ValueError(
            f"{len(scales)} scales do not fit {len(values)} codes in blocks of {block}"
        )
    return values.mul_(scales.repeat_interleave(block)[: len(values)])
