"""One ``Written`` for each way that weights are quantised in."""

from __future__ import annotations

import json
from typing import Any

import torch
from torch import Tensor

from tests.models.step.quantised.writing import (
    Parts,
    Written,
    product,
    random_codes,
    random_scales,
    words,
)

GROUP = 16
FP4 = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)
NF4 = [
    -1.0,
    -0.69,
    -0.52,
    -0.39,
    -0.28,
    -0.18,
    -0.09,
    0.0,
    0.08,
    0.16,
    0.25,
    0.34,
    0.44,
    0.56,
    0.72,
    1.0,
]
AWQ_ORDER = (0, 2, 4, 6, 1, 3, 5, 7)  # AutoAWQ's, of the outputs in a word


def blocks(scales: Tensor, shape: torch.Size, size: int) -> Tensor:
    """Number by number, each block's scale."""
    rows, columns = shape
    whole = torch.empty(shape)
    for row in range(rows):
        for column in range(columns):
            whole[row, column] = scales[row // size, column // size]
    return whole


def fp8_blocks(weight: Tensor) -> tuple[Parts, Tensor]:
    """Of 24, so that the last are smaller."""
    codes = weight.to(torch.float8_e4m3fn)
    rows, columns = weight.shape
    scales = random_scales(-(-rows // 24), -(-columns // 24)).float()
    return {".weight": codes, ".weight_scale_inv": scales}, codes.float() * blocks(
        scales, weight.shape, 24
    )


def fp8_whole(weight: Tensor) -> tuple[Parts, Tensor]:
    codes, scale = weight.to(torch.float8_e4m3fn), torch.tensor(0.37)
    parts = {".weight": codes, ".weight_scale_inv": scale, ".activation_scale": torch.tensor(0.5)}
    return parts, codes.float() * scale


def fp8_exponents(weight: Tensor) -> tuple[Parts, Tensor]:
    """MXFP8: bytes are exponents, of each 16 inputs here."""
    codes = weight.to(torch.float8_e4m3fn)
    exponents = torch.from_numpy(random_codes((len(weight), weight.shape[1] // GROUP), 3)) + 122
    numbers = codes.float().view(len(weight), -1, GROUP) * 2.0 ** (exponents[..., None] - 127)
    parts = {".weight": codes, ".weight_scale_inv": exponents.to(torch.uint8)}
    return parts, numbers.float().view(weight.shape)


def fp8_named(weight: Tensor, name: str) -> tuple[Parts, Tensor]:
    parts, whole = fp8_blocks(weight)
    return {".weight": parts[".weight"], name: parts[".weight_scale_inv"]}, whole


def fp4_halves(weight: Tensor) -> tuple[Parts, Tensor]:
    """DeepSeek V4's experts: two numbers a byte, with an exponent for each 16 here."""
    outputs, inputs = weight.shape
    octets, numbers = fp4_codes(weight.shape)
    exponents = torch.from_numpy(random_codes((outputs, inputs // GROUP), 3) + 122).to(torch.uint8)
    numbers = numbers.view(outputs, -1, GROUP) * 2.0 ** (exponents[..., None].float() - 127)
    parts = {".weight": octets.view(torch.int8), ".scale": exponents.view(torch.float8_e8m0fnu)}
    return parts, numbers.view(outputs, inputs)


def fp4_codes(shape: torch.Size) -> tuple[Tensor, Tensor]:
    """Bytes with two codes each, the first lower, and the numbers they stand for."""
    codes = random_codes(shape, 4)
    numbers = torch.tensor([[FP4[c & 7] * (-1 if c > 7 else 1) for c in row] for row in codes])
    return torch.from_numpy(codes[:, ::2] | codes[:, 1::2] << 4).to(torch.uint8), numbers


def fp8_rows(weight: Tensor) -> tuple[Parts, Tensor]:
    codes, scales = weight.to(torch.float8_e4m3fn), random_scales(len(weight), 1).bfloat16()
    parts = {".weight": codes, ".weight_scale": scales, ".input_scale": torch.tensor([0.5])}
    return parts, codes.float() * scales.float()


def int8_rows(weight: Tensor) -> tuple[Parts, Tensor]:
    codes = random_codes(weight.shape, 8) - 128
    scales, zeros = random_scales(len(weight), 1), random_codes((len(weight), 1), 4) - 8
    parts = {
        ".weight": torch.from_numpy(codes).to(torch.int8),
        ".weight_scale": scales,
        ".weight_zero_point": torch.from_numpy(zeros).to(torch.int8),
    }
    return parts, product(codes, zeros, scales, [0] * weight.shape[1])


def packed(
    weight: Tensor, bits: int, *, zeros: bool, places: bool = False, group: int = GROUP
) -> tuple[Parts, Tensor]:
    """compressed-tensors' ``pack-quantized``."""
    outputs, inputs = weight.shape
    codes, scales = random_codes(weight.shape, bits), random_scales(outputs, inputs // group)
    points = random_codes(scales.shape, bits) if zeros else codes[:1, :1].repeat(outputs, 0) * 0
    parts = {
        ".weight_packed": words(codes, bits),
        ".weight_scale": scales,
        ".weight_shape": torch.tensor([outputs, inputs]),
    }
    groups = [column // group for column in range(inputs)]
    if places:
        groups = [column % (inputs // group) for column in range(inputs)]
        parts[".weight_g_idx"] = torch.tensor(groups, dtype=torch.int32)
    if zeros:
        parts[".weight_zero_point"] = words(points.T, bits).T
    else:
        points = points.repeat(inputs // group, 1) + 2 ** (bits - 1)
    return parts, product(codes, points, scales, groups)


def nvfp4(weight: Tensor) -> tuple[Parts, Tensor]:
    outputs, inputs = weight.shape
    octets, numbers = fp4_codes(weight.shape)
    scales = (random_scales(outputs, inputs // GROUP) * 16).to(torch.float8_e4m3fn)
    whole = torch.tensor([3.0])
    parts = {
        ".weight_packed": octets,
        ".weight_scale": scales,
        ".weight_global_scale": whole,
        ".input_global_scale": torch.tensor([7.0]),
    }
    scaled = numbers.view(outputs, -1, GROUP) * (scales.float() / whole)[..., None]
    return parts, scaled.view(outputs, inputs)


def gptq(
    weight: Tensor,
    bits: int,
    *,
    first: bool = True,
    zeros: bool = True,
    act: bool = False,
    group: int = GROUP,
) -> tuple[Parts, Tensor]:
    outputs, inputs = weight.shape
    codes, scales = random_codes(weight.shape, bits), random_scales(outputs, inputs // group)
    points = random_codes(scales.shape, bits).clip(1) if zeros else 2 ** (bits - 1)
    points = points + 0 * random_codes(scales.shape, bits)
    count = inputs // group
    groups = [column % count if act else column // group for column in range(inputs)]
    parts = {
        ".qweight": words(codes, bits).T,
        ".qzeros": words((points - first).T, bits),
        ".scales": scales.T,
        ".g_idx": torch.tensor(groups, dtype=torch.int32),
    }
    return parts, product(codes, points, scales, groups)


def awq(weight: Tensor, group: int = GROUP) -> tuple[Parts, Tensor]:
    outputs, inputs = weight.shape
    codes, scales = random_codes(weight.shape, 4), random_scales(outputs, inputs // group)
    points = random_codes(scales.shape, 4)
    order = [8 * (place // 8) + AWQ_ORDER[place % 8] for place in range(outputs)]
    parts = {
        ".qweight": words(codes.T[:, order], 4),
        ".qzeros": words(points.T[:, order], 4),
        ".scales": scales.T,
    }
    return parts, product(codes, points, scales, [column // group for column in range(inputs)])


def nf4(weight: Tensor, *, nested: bool) -> tuple[Parts, Tensor]:
    count = weight.numel()
    codes = random_codes((count,), 4)
    state = {"quant_type": "nf4", "blocksize": 64, "dtype": "bfloat16", "shape": list(weight.shape)}
    scales = random_scales(-(-count // 64)).float()
    parts = {
        ".weight": torch.from_numpy(codes[::2] << 4 | codes[1::2]).to(torch.uint8)[:, None],
        ".weight.quant_map": torch.tensor(NF4),
        ".weight.absmax": scales,
    }
    if nested:
        octets = random_codes((len(scales),), 8)
        table, rows = torch.linspace(-1, 1, 256), random_scales(-(-len(scales) // 256)).float()
        scales = (
            torch.tensor([float(table[c] * rows[n // 256]) for n, c in enumerate(octets)]) + 0.25
        )
        parts[".weight.absmax"] = torch.from_numpy(octets).to(torch.uint8)
        parts |= {".weight.nested_absmax": rows, ".weight.nested_quant_map": table}
        state |= {"nested_blocksize": 256, "nested_dtype": "float32", "nested_offset": 0.25}
    told = list(json.dumps(state).encode())
    parts[".weight.quant_state.bitsandbytes__nf4"] = torch.tensor(told, dtype=torch.uint8)
    numbers = torch.tensor([NF4[code] for code in codes]) * scales.repeat_interleave(64)[:count]
    return parts, numbers.view(weight.shape)


def llm_int8(weight: Tensor) -> tuple[Parts, Tensor]:
    codes = torch.from_numpy(random_codes(weight.shape, 8) - 128).to(torch.int8)
    scales = random_scales(len(weight)).float()
    parts = {".weight": codes, ".SCB": scales, ".weight_format": torch.tensor(0, dtype=torch.uint8)}
    return parts, codes.float() * (scales / 127)[:, None]


def torchao_int8(weight: Tensor) -> tuple[Parts, Tensor]:
    codes = torch.from_numpy(random_codes(weight.shape, 8) - 128).to(torch.int8)
    scales = random_scales(len(weight), 1)
    return {"._weight_qdata": codes, "._weight_scale": scales}, codes.float() * scales.float()


def torchao_zeros(weight: Tensor) -> tuple[Parts, Tensor]:
    """By groups, with zeros, and what inputs are multiplied by before."""
    outputs, inputs = weight.shape
    codes, points = random_codes(weight.shape, 8) - 128, random_codes((outputs, inputs // GROUP), 4)
    scales, before = random_scales(*points.shape), random_scales(inputs)
    parts = {
        "._weight_qdata": torch.from_numpy(codes).to(torch.int8),
        "._weight_scale": scales,
        "._weight_zero_point": torch.from_numpy(points).to(torch.int8),
        "._weight_act_pre_scale": before,
    }
    groups = [column // GROUP for column in range(inputs)]
    return parts, product(codes, points, scales, groups) * before.float()


def mxfp4_experts(weight: Tensor) -> tuple[Parts, Tensor]:
    """gpt-oss's: [experts, inputs, outputs], packed the other way round."""
    experts, inputs, outputs = weight.shape
    codes = random_codes((experts, outputs, inputs), 4)
    exponents = random_codes((experts, outputs, inputs // 32), 3) + 122
    octets = (codes[..., ::2] | codes[..., 1::2] << 4).reshape(experts, outputs, -1, 16)
    signed = torch.tensor([*FP4, *(-number for number in FP4)])
    numbers = signed[torch.from_numpy(codes)].view(experts, outputs, -1, 32)
    numbers *= 2.0 ** (torch.from_numpy(exponents)[..., None].float() - 127)
    parts = {
        "_proj_blocks": torch.from_numpy(octets).to(torch.uint8),
        "_proj_scales": torch.from_numpy(exponents).to(torch.uint8),
    }
    return parts, numbers.view(experts, outputs, inputs).transpose(1, 2).contiguous()


def compressed(form: str, **weights: Any) -> dict[str, Any]:
    return {
        "quant_method": "compressed-tensors",
        "format": form,
        "config_groups": {"group_0": {"targets": ["Linear"], "weights": weights}},
        "ignore": ["lm_head"],
    }


def int4(**told: Any) -> dict[str, Any]:
    return {"bits": 4, "group_size": GROUP, **told}


FORMATS: dict[str, Written] = {
    "fp8 blocks": Written({"quant_method": "fp8", "weight_block_size": [24, 24]}, fp8_blocks),
    "fp8 whole": Written({"quant_method": "fp8", "weight_block_size": None}, fp8_whole),
    "fp8 scale": Written(
        {"quant_method": "fp8", "weight_block_size": [24, 24]},
        lambda weight: fp8_named(weight, ".scale"),
    ),
    "fp8 qscale": Written(
        {"quant_method": "fp8", "weight_block_size": [24, 24]},
        lambda weight: fp8_named(weight, ".qscale_weight"),
    ),
    "fp4 in fp8": Written({"quant_method": "fp8", "weight_block_size": [128, 128]}, fp4_halves),
    "mxfp8": Written({"quant_method": "mxfp8"}, fp8_exponents),
    "fbgemm": Written({"quant_method": "fbgemm_fp8"}, fp8_rows),
    "float-quantized": Written(
        compressed("float-quantized", type="float", num_bits=8, strategy="channel"), fp8_rows
    ),
    "int-quantized": Written(compressed("int-quantized", type="int", num_bits=8), int8_rows),
    "w4a16": Written(
        compressed("pack-quantized", type="int", num_bits=4, group_size=GROUP),
        lambda weight: packed(weight, 4, zeros=False),
    ),
    "w4a16 asymmetric": Written(
        compressed("pack-quantized", type="int", num_bits=4, symmetric=False),
        lambda weight: packed(weight, 4, zeros=True),
    ),
    "w4a16 by activations": Written(
        compressed("pack-quantized", type="int", num_bits=4, actorder="group"),
        lambda weight: packed(weight, 4, zeros=True, places=True),
    ),
    "w8a16": Written(
        compressed("pack-quantized", type="int", num_bits=8),
        lambda weight: packed(weight, 8, zeros=False),
    ),
    "nvfp4": Written(compressed("nvfp4-pack-quantized", type="float", num_bits=4), nvfp4),
    "gptq": Written(
        int4(quant_method="gptq", sym=True), lambda weight: gptq(weight, 4, zeros=False)
    ),
    "gptq asymmetric": Written(
        int4(quant_method="gptq", sym=False), lambda weight: gptq(weight, 4)
    ),
    "gptq by activations": Written(
        int4(quant_method="gptq", desc_act=True), lambda weight: gptq(weight, 4, act=True)
    ),
    "gptq 8": Written({**int4(quant_method="gptq"), "bits": 8}, lambda weight: gptq(weight, 8)),
    "gptq 2": Written({**int4(quant_method="gptq"), "bits": 2}, lambda weight: gptq(weight, 2)),
    "gptq v2": Written(
        int4(quant_method="gptq", checkpoint_format="gptq_v2"),
        lambda weight: gptq(weight, 4, first=False),
    ),
    "auto-round": Written(
        int4(quant_method="auto-round", packing_format="auto_round:auto_gptq"),
        lambda weight: gptq(weight, 4),
    ),
    "auto-round raw": Written(
        int4(quant_method="auto-round", packing_format="auto_round", data_type="int"),
        lambda weight: gptq(weight, 4, first=False),
    ),
    "auto-round awq": Written(
        int4(quant_method="auto-round", packing_format="auto_round:auto_awq"), awq
    ),
    "awq": Written(int4(quant_method="awq", version="gemm", zero_point=True), awq),
    "nf4": Written(
        {"quant_method": "bitsandbytes", "load_in_4bit": True, "bnb_4bit_quant_type": "nf4"},
        lambda weight: nf4(weight, nested=False),
    ),
    "nf4 nested": Written(
        {"quant_method": "bitsandbytes", "load_in_4bit": True, "bnb_4bit_quant_type": "nf4"},
        lambda weight: nf4(weight, nested=True),
    ),
    "llm.int8": Written({"quant_method": "bitsandbytes", "load_in_8bit": True}, llm_int8),
    "torchao": Written(
        {"quant_method": "torchao", "quant_type": {"default": {"_type": "Int8WeightOnlyConfig"}}},
        torchao_int8,
    ),
    "torchao zeros": Written(
        {"quant_method": "torchao", "quant_type": {"default": {"_type": "IntxWeightOnlyConfig"}}},
        torchao_zeros,
    ),
}
# As most are, by groups that are no smaller.
BY_32: dict[str, Written] = {
    "gptq by 32": Written(
        {**int4(quant_method="gptq"), "group_size": 32}, lambda weight: gptq(weight, 4, group=32)
    ),
    "awq by 32": Written(int4(quant_method="awq"), lambda weight: awq(weight, 32)),
    "w4a16 by 32": Written(
        compressed("pack-quantized", type="int", num_bits=4),
        lambda weight: packed(weight, 4, zeros=False, group=32),
    ),
}
