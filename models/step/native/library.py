"""The compiled library: its C structures and functions, as ctypes sees them."""

from __future__ import annotations

import ctypes
from ctypes import POINTER, Structure, c_bool, c_char_p, c_float, c_int, c_int32, c_int64, c_void_p
from pathlib import Path
from typing import Any

LANES = 16  # numbers that the kernels work on at a time


class Shape(Structure):
    _fields_ = [
        ("layers", c_int32),
        ("hidden", c_int32),
        ("heads", c_int32),
        ("kv_heads", c_int32),
        ("head_dim", c_int32),
        ("vocab", c_int32),
        ("arithmetic", c_int32),
        ("held", c_int32),
        ("half_embedding", c_int32),
        ("kv_format", c_int32),
        ("block_size", c_int32),
        ("embedding_scale", c_float),
        ("residual_scale", c_float),
        ("logit_scale", c_float),
        ("logit_cap", c_float),
    ]


class Weight(Structure):
    _fields_ = [
        *((name, c_void_p) for name in ("numbers", "scales", "zeros", "bias")),
        ("kind", c_int32),
        ("group", c_int32),
    ]


NORMS = ("norm", "behind", "inner_norm", "inner_behind", "q_norm", "k_norm")
TABLES = ("cosines", "sines")


class NormWeights(Structure):
    _fields_ = [
        ("weight", c_void_p),
        ("bias", c_void_p),
        ("count", c_int32),
        ("together", c_int32),
        ("centred", c_int32),
        ("epsilon", c_float),
    ]


class LayerWeights(Structure):
    _fields_ = [
        *((name, Weight) for name in ("q", "k", "v", "o")),
        *((name, NormWeights) for name in NORMS),
        *((name, c_void_p) for name in ("sinks", *TABLES)),
        ("rotary_dim", c_int32),
        ("norms_last", c_int32),
        ("parallel", c_int32),
        ("window", c_int32),
        ("scale", c_float),
        ("cap", c_float),
    ]


GATED = ("gate", "up", "down")


class Activation(Structure):
    _fields_ = [
        ("curve", c_int32),
        ("slope", c_float),
        ("limit", c_float),
        ("shift", c_float),
    ]


class GatedWeights(Structure):
    _fields_ = [
        *((name, Weight) for name in GATED),
        ("inner", c_int32),
        ("activation", Activation),
    ]


class RoutingRule(Structure):
    _fields_ = [
        ("experts", c_int32),
        ("chosen", c_int32),
        ("sigmoid", c_int32),
        ("normalised", c_int32),
        ("groups", c_int32),
        ("allowed", c_int32),
        ("scale", c_float),
    ]


class ExpertsWeights(Structure):
    _fields_ = [
        ("rule", RoutingRule),
        ("router", Weight),
        ("preference", c_void_p),
        ("each", GatedWeights),
        ("step", c_int32),
        ("shared", GatedWeights),
        ("shared_share", Weight),
    ]


class LowRankWeights(Structure):
    _fields_ = [("inner", Weight), ("outer", Weight), ("rank", c_int32), ("scale", c_float)]


ADAPTED = ("q", "k", "v", "o", *GATED)


class AdapterWeights(Structure):
    _fields_ = [(name, LowRankWeights) for name in ADAPTED]


class Step(Structure):
    _fields_ = [
        ("ids", c_void_p),
        ("spans", c_void_p),
        ("adapters", c_void_p),
        ("tables", c_void_p),
        ("keep", c_void_p),
        ("logits", c_void_p),
        ("tokens", c_int32),
        ("sequences", c_int32),
        ("kept", c_int32),
    ]


# What each function returns and takes; where that is an int, 0 says that all went well.
_ROWS = (c_void_p, c_void_p, c_int64, c_int32, c_int32)
FUNCTIONS: dict[str, tuple[Any, tuple[Any, ...]]] = {
    "team_create": (c_int, (c_int32, POINTER(c_void_p))),
    "team_destroy": (None, (c_void_p,)),
    "stack_create": (
        c_int,
        (c_void_p, POINTER(Shape), c_void_p, POINTER(c_void_p)),
    ),
    "stack_set_layer": (c_int, (c_void_p, c_int32, POINTER(LayerWeights))),
    "stack_set_gated": (c_int, (c_void_p, c_int32, POINTER(GatedWeights))),
    "stack_set_experts": (c_int, (c_void_p, c_int32, POINTER(ExpertsWeights))),
    "stack_set_head": (c_int, (c_void_p, POINTER(NormWeights), POINTER(Weight))),
    "stack_set_adapter": (
        c_int,
        (c_void_p, c_int32, c_int32, c_int32, POINTER(AdapterWeights)),
    ),
    "stack_round_to": (c_int, (c_void_p, c_int32, c_int32)),
    "stack_allocate": (c_int, (c_void_p, c_int32)),
    "step_knows": (c_bool, (POINTER(Step), c_int64)),
    "step_fits": (c_bool, (POINTER(Step), c_int32, c_int32, c_int32, c_int32, c_int32)),
    "stack_forward": (c_int, (c_void_p, POINTER(Step))),
    "stack_weight_bytes": (c_int64, (c_void_p,)),
    "stack_instructions": (c_char_p, ()),
    "stack_multiplies_bfloat16": (c_bool, ()),
    "stack_destroy": (None, (c_void_p,)),
    "rows_sample": (c_int, (*_ROWS, c_void_p, c_void_p)),
    "rows_score": (c_int, (*_ROWS, c_void_p, c_int32, c_void_p, c_void_p)),
}


def load(path: Path) -> ctypes.CDLL:
    """Raises OSError if the file is no library for this machine."""
    library = ctypes.CDLL(str(path))
    for name, (result, arguments) in FUNCTIONS.items():
        function = getattr(library, name)
        function.restype, function.argtypes = result, arguments
        if result is c_int:
            function.errcheck = _succeeded
    return library


def _succeeded(failed: int, function: Any, _: tuple[Any, ...]) -> int:
    if failed:
        raise MemoryError(f"{function.__name__}: there is not enough memory, or no more threads")
    return failed
