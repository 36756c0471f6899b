"""What the libraries that define the formats make of a few numbers, and what theirs stand for."""

from __future__ import annotations

import json
from collections import abc
from typing import Any

import torch
from torch import Tensor

from models.step.grouped import GroupedWeight, dequantised
from models.step.quantised.layout import Layout
from models.step.quantised.weights import format_of

EIGHT = torch.arange(8.0)


def read(told: abc.Mapping[str, Any], parts: dict[str, Tensor]) -> list[float]:
    layout = next(each for each in format_of(told).layouts if fits(each, parts))
    stored = layout.read(parts)
    whole = dequantised(stored) if isinstance(stored, GroupedWeight) else stored
    numbers: list[float] = whole.flatten().tolist()
    return numbers


def fits(layout: Layout, parts: dict[str, Tensor]) -> bool:
    return layout.codes in parts and set(layout.needed) <= set(parts)


def words(*values: int) -> Tensor:
    return torch.tensor(values).to(torch.int32)


def test_compressed_tensors_packs_from_the_lowest_bits_with_8_for_zero() -> None:
    """``pack_to_int32`` of compressed-tensors 0.20.1, of -8 to 7, and of zero points -3, 2, 7."""
    told = {"quant_method": "compressed-tensors", "format": "pack-quantized"}
    parts = {
        ".weight_packed": words(1985229328, -19088744)[None],
        ".weight_scale": torch.tensor([[0.5]]),
        ".weight_shape": torch.tensor([1, 16]),
    }
    assert read(told, parts) == [number / 2 for number in range(-8, 8)]
    parts = {
        ".weight_packed": words(1985229328, -19088744).repeat(3, 1),
        ".weight_scale": torch.ones(3, 1),
        ".weight_zero_point": words(4005)[None],
        ".weight_shape": torch.tensor([3, 16]),
    }
    assert read(told, parts) == [number - 8 - zero for zero in (-3, 2, 7) for number in range(16)]


def test_gptq_stores_zeros_less_by_one_at_first() -> None:
    """2004318071, 0x77777777, is what symmetric checkpoints of AutoGPTQ have for zeros of 8."""
    parts = {
        ".qweight": words(0x76543210).repeat(8)[None],
        ".qzeros": words(2004318071)[None],
        ".scales": torch.ones(1, 8),
    }
    told = {"quant_method": "gptq", "bits": 4, "group_size": -1}
    assert read(told, parts) == (EIGHT - 8).repeat(8).tolist()
    assert read({**told, "checkpoint_format": "gptq_v2"}, parts) == (EIGHT - 7).repeat(8).tolist()


def test_awq_has_the_outputs_of_a_word_in_an_order_of_its_own() -> None:
    """``AWQ_ORDER`` of AutoAWQ 0.2.9: the outputs 0, 2, 4, 6, 1, 3, 5, 7 from the lowest bits."""
    parts = {
        ".qweight": words(0x75316420)[None],
        ".qzeros": words(0x11111111)[None],
        ".scales": torch.ones(1, 8),
    }
    assert read({"quant_method": "awq", "bits": 4}, parts) == (EIGHT - 1).tolist()


def test_bitsandbytes_has_the_upper_half_of_a_byte_first() -> None:
    """``quantize_4bit`` of bitsandbytes 0.50.2, of -2, -1.94, …; to 4 numbers after the point."""
    state = {"quant_type": "nf4", "blocksize": 64, "dtype": "float32", "shape": [2, 4]}
    table = [-1.0, -0.6962, -0.5251, -0.3949, -0.2844, -0.1848, -0.0911, 0.0]
    table += [0.0796, 0.1609, 0.2461, 0.3379, 0.4407, 0.5626, 0.723, 1.0]
    parts = {
        ".weight": torch.tensor([[0], [0], [1], [17]], dtype=torch.uint8),
        ".weight.absmax": torch.tensor([2.0]),
        ".weight.quant_map": torch.tensor(table, dtype=torch.float64),
        ".weight.quant_state.bitsandbytes__nf4": torch.tensor(
            list(json.dumps(state).encode()), dtype=torch.uint8
        ),
    }
    told = {"quant_method": "bitsandbytes", "load_in_4bit": True}
    assert read(told, parts) == [-2.0] * 5 + [-1.3924] * 3


def test_mxfp4_is_of_the_open_compute_project() -> None:
    """OCP Microscaling Formats 1.0: E2M1 with the lower half of a byte first, E8M0 scales."""
    octets = [16 * (code + 1) + code for code in range(0, 16, 2)] * 2
    parts = {
        "_blocks": torch.tensor(octets, dtype=torch.uint8).view(1, 1, 1, 16),
        "_scales": torch.tensor([128], dtype=torch.uint8).view(1, 1, 1),
    }
    positive = [0.0, 1.0, 2.0, 3.0, 4.0, 6.0, 8.0, 12.0]
    every = positive + [-number for number in positive]
    assert read({"quant_method": "mxfp4"}, parts) == every * 2


def test_fp8_is_multiplied_by_what_is_called_its_inverse_scale() -> None:
    """DeepSeek V3's ``weight_dequant``: one for each 128 times 128, or fewer."""
    parts = {
        "": torch.tensor([0x38, 0x7E, 0xB8], dtype=torch.uint8)
        .view(torch.float8_e4m3fn)[None]
        .repeat(1, 64),
        "_scale_inv": torch.tensor([[2.0, 3.0]]),
    }
    numbers = read({"quant_method": "fp8", "weight_block_size": [128, 128]}, parts)
    assert numbers[:3] == [2.0, 896.0, -2.0]
    assert numbers[126:131] == [2.0, 896.0, -3.0, 3.0, 1344.0]
