from __future__ import annotations

from typing import Any

import pytest
import torch

from models.step.attention import PAGED
from models.step.native.blueprint import read_blueprint
from models.step.native.build import NoNative
from models.step.probe import Probe
from models.step.trace import Trace
from tests.models.step.native.stacking import (
    BLOCK,
    FITTING,
    forward_of,
    stack_of,
)
from tests.models.step.tiny import tiny


@pytest.mark.parametrize(
    ("part", "shape"), [("v_proj", (16, 64)), ("o_proj", (64, 32)), ("q_proj", (128, 64))]
)
def test_layers_of_other_shapes_are_refused(part: str, shape: tuple[int, int]) -> None:
    """Before anything is read of them."""
    model = tiny("llama", **FITTING)
    model.set_attn_implementation(PAGED)
    trace = Trace(model)
    outputs, inputs = shape
    for layer in model.model.layers:
        linear = getattr(layer.self_attn, part)
        linear.in_features, linear.out_features = inputs, outputs
    with pytest.raises(NoNative, match="other shapes"):
        read_blueprint(model, trace)


@pytest.mark.parametrize(
    ("model_type", "changes", "reason"),
    [
        ("gpt2", {}, "other parts"),
        ("opt", {"ffn_dim": 80}, "in two parts"),
        ("olmo", {"clip_qkv": 8.0}, "clip_qkv"),
        ("llama", {"hidden_act": "relu"}, "activation is relu"),
        ("llama", {"head_dim": 8}, "heads of 8"),
        ("llama", {"intermediate_size": 72}, "layers of 72"),
    ],
)
def test_other_models_are_refused(model_type: str, changes: dict[str, Any], reason: str) -> None:
    model = tiny(model_type, **{**FITTING, **changes})
    with pytest.raises(NoNative, match=reason):
        stack_of(model)


def test_what_only_looks_like_a_known_stack_is_found_out() -> None:
    model = tiny("llama", **FITTING)
    model.model.layers[1].mlp.act_fn = torch.nn.ReLU()
    assert "differ" in Probe(model).disagreement(forward_of(model), BLOCK)
