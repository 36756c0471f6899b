from __future__ import annotations

from typing import Any

import pytest

from models.quantisation import quantisation, require_readable


def compressed(form: str, **told: Any) -> dict[str, Any]:
    weights = told.pop("weights", {"type": "int", "num_bits": 4})
    groups = {"group_0": {"targets": ["Linear"], "weights": weights}}
    return {"quant_method": "compressed-tensors", "format": form, "config_groups": groups, **told}


@pytest.mark.parametrize(
    "told",
    [
        None,
        {"quant_method": "fp8", "weight_block_size": [128, 128]},
        {"quant_method": "gptq", "bits": 4, "checkpoint_format": "gptq_v2"},
        {"quant_method": "awq", "bits": 4, "version": "GEMM"},
        {"load_in_4bit": True, "bnb_4bit_quant_storage": "uint8"},
        compressed("pack-quantized"),
        compressed("mixed-precision"),
        compressed("float-quantized", weights={"type": "float", "num_bits": 8}),
        {"quant_method": "torchao", "quant_type": {"default": {"_type": "Int8WeightOnlyConfig"}}},
    ],
)
def test_these_are_read(told: dict[str, Any] | None) -> None:
    require_readable({"model_type": "llama", "quantization_config": told})


@pytest.mark.parametrize(
    ("told", "reason"),
    [
        ({"quant_method": "aqlm"}, "by aqlm, which is not supported"),
        ({"quant_method": "gptq", "bits": 3}, "by gptq, in 3 bits"),
        ({"quant_method": "gptq", "bits": 4, "checkpoint_format": "marlin"}, "whose format marlin"),
        ({"quant_method": "gptq", "bits": 4, "pack_dtype": "int64"}, "packed in int64"),
        ({"quant_method": "awq", "bits": 4, "version": "gemv"}, "whose version gemv"),
        ({"quant_method": "auto-round", "bits": 4}, "whose format None"),
        (
            {"quant_method": "auto-round", "packing_format": "auto_round", "data_type": "mx_fp"},
            "by auto-round, as mx_fp",
        ),
        ({"load_in_4bit": True, "bnb_4bit_quant_storage": "bfloat16"}, "stored in bfloat16"),
        (compressed("marlin-24"), "whose format marlin-24"),
        (compressed("pack-quantized", weights={"num_bits": 3}), "in 3 bits"),
        (compressed("dense", sparsity_config={"format": "sparse-24-bitmask"}), "sparse-24-bitmask"),
        (compressed("pack-quantized", transform_config={"R1": {}}), "transforms of activations"),
        (
            compressed("nvfp4-pack-quantized", weights={"type": "float", "symmetric": False}),
            "floats with zero points",
        ),
        (
            {
                "quant_method": "torchao",
                "quant_type": {"default": {"_type": "Int4WeightOnlyConfig"}},
            },
            "by torchao, as Int4WeightOnlyConfig",
        ),
    ],
)
def test_these_are_refused_and_told_what_to_do(told: dict[str, Any], reason: str) -> None:
    with pytest.raises(ValueError, match=f"{reason}.*: take it unquantised, or as FP8 or by GPTQ"):
        require_readable({"quantization_config": told})


@pytest.mark.parametrize(
    ("told", "reason"),
    [
        ({"quant_method": "gptq", "bits": "4"}, r"quantization_config\.bits is '4' \(.*integer"),
        ({"quant_method": "gptq", "bits": 4, "group_size": "x"}, r"group_size is 'x' \(.*integer"),
        ({"quant_method": "fp8", "weight_block_size": 128}, r"weight_block_size is 128 \(.*list"),
        ({"quant_method": "fp8", "weight_block_size": [0, 128]}, r"weight_block_size\.0 is 0"),
        (compressed("dense", config_groups=[]), r"config_groups is \[\] \(.*dictionary"),
        (
            compressed("dense", weights={"num_bits": 4, "symmetric": "no"}),
            r"config_groups\.group_0\.weights\.symmetric is 'no' \(.*boolean",
        ),
        ({"quant_method": "torchao", "quant_type": {"default": 8}}, r"quant_type\.default is 8"),
    ],
)
def test_keys_of_a_wrong_type_are_named(told: dict[str, Any], reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        require_readable({"quantization_config": told})


def test_the_text_half_of_a_model_may_tell() -> None:
    told = {"quant_method": "fp8"}
    assert quantisation({"text_config": {"quantization_config": told}}) == told
    assert quantisation({"text_config": {}, "quantization_config": None}) is None
