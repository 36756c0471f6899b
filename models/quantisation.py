"""Which quantised checkpoints can be read, told by their config.json. Imports no torch."""

from __future__ import annotations

from collections import abc
from typing import Annotated, Any

from pydantic import BaseModel, Field, ValidationError

Config = abc.Mapping[str, Any]

INSTEAD = "take it unquantised, or as FP8 or by GPTQ, AWQ, compressed-tensors or bitsandbytes"


def quantisation(config: Config) -> Config | None:
    """How the weights beside ``config`` are quantised, by its own words; None: they are not."""
    inner = config.get("text_config") or {}
    found: Config | None = config.get("quantization_config") or inner.get("quantization_config")
    return found or None


def method(told: Config) -> str:
    """``told`` is what ``quantisation`` found."""
    if told.get("load_in_4bit") or told.get("load_in_8bit"):
        return "bitsandbytes"
    return str(told.get("quant_method"))


def require_readable(config: Config) -> None:
    """Raises ValueError with the reason, and what to do."""
    told = quantisation(config)
    if told is not None and (objection := _objection(told)):
        raise ValueError(f"its weights are quantised by {method(told)}, {objection}: {INSTEAD}")


def _objection(told: Config) -> str:
    check = CHECKS.get(method(told))
    if check is None:
        return "which is not supported"
    try:
        _Told.model_validate(told)
    except ValidationError as error:
        first = error.errors()[0]
        key = ".".join(map(str, ("quantization_config", *first["loc"])))
        return f"but in config.json {key} is {first['input']!r} ({first['msg']})"
    return check(told)


Block = Annotated[list[Annotated[int, Field(gt=0)]], Field(min_length=2, max_length=2)]


class _Weights(BaseModel, strict=True):
    type: str | None = None
    num_bits: int | None = None
    symmetric: bool | None = None
    block_structure: Block | None = None


class _Group(BaseModel, strict=True):
    format: str | None = None
    weights: _Weights | None = None


class _Kind(BaseModel, strict=True):
    type: str | None = Field(None, alias="_type")


class _Sparsity(BaseModel, strict=True):
    format: str | None = None


class _Told(BaseModel, strict=True):
    """What is read of a configuration."""

    load_in_4bit: bool | None = None
    load_in_8bit: bool | None = None
    bits: int | None = None
    w_bit: int | None = None
    group_size: int | None = None
    weight_block_size: Block | None = None
    checkpoint_format: str | None = None
    format: str | None = None
    packing_format: str | None = None
    pack_dtype: str | None = None
    data_type: str | None = None
    version: str | None = None
    bnb_4bit_quant_type: str | None = None
    bnb_4bit_quant_storage: str | None = None
    config_groups: dict[str, _Group] | None = None
    sparsity_config: _Sparsity | None = None
    quant_type: dict[str, _Kind] | None = None


def _gptq(told: Config) -> str:
    packed = told.get("checkpoint_format") or told.get("format") or "gptq"
    if packed not in ("gptq", "gptq_v2"):
        return f"whose format {packed} is not supported"
    if told.get("pack_dtype") not in (None, "int32"):
        return f"packed in {told['pack_dtype']}, which is not supported"
    return _bits(told.get("bits"), (2, 4, 8))


def _awq(told: Config) -> str:
    packed = str(told.get("version") or told.get("format") or "gemm").lower()
    if packed != "gemm":
        return f"whose version {packed} is not supported"
    return _bits(told.get("bits") or told.get("w_bit"), (4,))


def _auto_round(told: Config) -> str:
    if (packed := told.get("packing_format")) not in AUTO_ROUND:
        return f"whose format {packed} is not supported"
    if (kind := told.get("data_type") or "int") != "int":
        return f"as {kind}, which is not supported"
    return _bits(told.get("bits"), (2, 4, 8))


def _bitsandbytes(told: Config) -> str:
    storage = told.get("bnb_4bit_quant_storage") or "uint8"
    return "" if storage == "uint8" else f"stored in {storage}, which is not supported"


def _compressed(told: Config) -> str:
    if told.get("transform_config"):
        return "with transforms of activations, which is not supported"
    groups = list((told.get("config_groups") or {}).values())
    formats = {told.get("format"), *(group.get("format") for group in groups)} - {None}
    formats.add((told.get("sparsity_config") or {}).get("format") or "dense")
    if unknown := sorted(formats - COMPRESSED):
        return f"whose format {unknown[0]} is not supported"
    for weights in filter(None, (group.get("weights") for group in groups)):
        if weights.get("type") == "float":
            if not weights.get("symmetric", True):
                return "as floats with zero points, which is not supported"
        elif objection := _bits(weights.get("num_bits"), (2, 4, 8)):
            return objection
    return ""


def _torchao(told: Config) -> str:
    kinds = {each.get("_type") for each in (told.get("quant_type") or {}).values()}
    unknown = sorted(str(kind) for kind in kinds - TORCHAO)
    return f"as {unknown[0]}, which is not supported" if unknown else ""


def _bits(bits: Any, known: abc.Collection[int]) -> str:
    return "" if bits in known else f"in {bits} bits, which is not supported"


def _any(told: Config) -> str:
    return ""


COMPRESSED = {
    "dense",
    "int-quantized",
    "float-quantized",
    "naive-quantized",
    "pack-quantized",
    "nvfp4-pack-quantized",
    "mxfp4-pack-quantized",
    "mxfp8-quantized",
    "mixed-precision",
}
# Whose layout each has: GPTQ's first or second one, or AWQ's.
AUTO_ROUND = {
    "auto_round:auto_gptq": "gptq",
    "auto_round:gptq": "gptq",
    "auto_round": "gptq_v2",
    "auto_round:gptqmodel": "gptq_v2",
    "auto_round:auto_awq": "awq",
    "auto_round:awq": "awq",
}
TORCHAO = {
    "Float8WeightOnlyConfig",
    "Float8DynamicActivationFloat8WeightConfig",
    "Int8WeightOnlyConfig",
    "Int8DynamicActivationInt8WeightConfig",
    "IntxWeightOnlyConfig",
    "Int8DynamicActivationIntxWeightConfig",
}
CHECKS: abc.Mapping[str, abc.Callable[[Config], str]] = {
    "fp8": _any,
    "mxfp8": _any,
    "fbgemm_fp8": _any,
    "mxfp4": _any,
    "compressed-tensors": _compressed,
    "gptq": _gptq,
    "awq": _awq,
    "auto-round": _auto_round,
    "bitsandbytes": _bitsandbytes,
    "torchao": _torchao,
}
