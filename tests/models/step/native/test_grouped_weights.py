"""Stacks whose linear layers came in 4 bits, or are rounded to them."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn
from transformers import PreTrainedModel

from models.step.grouped import GroupedLinear, GroupedWeight, grouped
from models.step.native.build import NoNative
from models.step.native.weights import Held
from models.step.probe import Probe
from tests.models.step.native.stacking import (
    BLOCK,
    FITTING,
    forward_of,
    logits_of,
    prompt,
    stack_of,
)
from tests.models.step.tiny import served, tiny

WIDE: dict[str, Any] = {**FITTING, "hidden_size": 128, "intermediate_size": 160}
CHUNK = (0, prompt(40), (1, 7, 3))


def in_codes(model: PreTrainedModel, group: int, *, but: tuple[str, ...] = ()) -> PreTrainedModel:
    for name, module in [*model.named_modules()]:
        if isinstance(module, nn.Linear) and not name.endswith(but):
            made = GroupedLinear(grouped(module.weight, group), module.bias)
            model.set_submodule(name, made)
    return model


def random_codes(linear: nn.Linear, group: int) -> GroupedWeight:
    """As no rounding would choose them: scales of either sign, zeros beyond the codes."""
    outputs, inputs = linear.weight.shape
    groups = -(-inputs // group)
    codes = torch.randint(0, 16, (outputs, inputs), dtype=torch.uint8)
    scales = (torch.randn(outputs, groups) * 0.02).bfloat16().float()
    return GroupedWeight(codes, scales, torch.randint(0, 17, (outputs, groups)).float(), group)


@pytest.mark.parametrize("held", Held)
@pytest.mark.parametrize("group", [32, 64, 128, 160])
def test_codes_are_multiplied_as_they_are(group: int, held: Held) -> None:
    """Whatever becomes of others; only what they are multiplied with is rounded to 8 bits."""
    torch.manual_seed(group)
    model = tiny("qwen2", **WIDE)
    for name, module in [*model.named_modules()]:
        if isinstance(module, nn.Linear):
            model.set_submodule(name, GroupedLinear(random_codes(module, group), module.bias))
    forward = forward_of(model, held=held)
    rounded = held in (Held.INT8, Held.INT4)
    assert Probe(model).disagreement(forward, BLOCK, 0.05 if rounded else None) == ""


@pytest.mark.parametrize("group", [32, 64])
def test_codes_take_the_memory_of_four_bits(group: int) -> None:
    model = tiny("llama", **{**WIDE, "vocab_size": 128, "intermediate_size": 192})
    whole = stack_of(model).weight_bytes
    assert stack_of(in_codes(model, group)).weight_bytes == whole * (4 + 32 / group) / 32


@pytest.mark.parametrize("held", [Held.EXACT, Held.INT8])
@pytest.mark.parametrize("group", [32, 64])
def test_a_row_is_the_same_to_the_bit_whatever_it_shares_a_step_with(
    group: int, held: Held
) -> None:
    forward = forward_of(in_codes(tiny("llama", **WIDE), group), held=held)
    whole = logits_of(forward, CHUNK)
    for count in (1, 5, 6, 7, 13):
        chunk = (0, CHUNK[1][:count], CHUNK[2])
        assert torch.equal(logits_of(forward, chunk), whole[:count])


def test_what_is_rounded_is_nearer_than_by_ranges_alone() -> None:
    model = tiny("llama", **WIDE, initializer_range=0.1)
    exact = logits_of(forward_of(model), CHUNK)
    ours = logits_of(forward_of(model, held=Held.INT4), CHUNK)
    ranges = logits_of(forward_of(in_codes(model, 32, but=("v_proj", "lm_head"))), CHUNK)
    assert (ours - exact).norm() < (ranges - exact).norm() < 0.4 * exact.norm()


def test_weights_that_four_bits_hold_are_rounded_to_what_they_are() -> None:
    model = in_codes(tiny("llama", **WIDE), 32, but=("v_proj", "lm_head"))
    codes = logits_of(forward_of(model, held=Held.INT8), CHUNK)
    for name, module in [*model.named_modules()]:
        if isinstance(module, GroupedLinear):
            plain = nn.Linear(module.in_features, module.out_features, bias=False)
            plain.weight.data = module(torch.eye(module.in_features)).T
            model.set_submodule(name, plain)
    again = logits_of(forward_of(model, held=Held.INT4), CHUNK)
    assert (again - codes).norm() < 0.02 * codes.norm()


@pytest.mark.parametrize("sign", [-1, 1])
@pytest.mark.parametrize("spread", [0.0, 0.05])
def test_numbers_that_are_nearly_equal_are_not_lost(spread: float, sign: int) -> None:
    """The best line through few codes may have a zero that their words cannot say."""
    torch.manual_seed(0)
    model = in_codes(tiny("llama", **WIDE), 32, but=("lm_head", "down_proj"))
    for layer in model.model.layers:
        weight = layer.mlp.down_proj.weight
        weight.data = sign * (0.05 - 0.05 * spread * torch.rand(weight.shape))
    exact = logits_of(forward_of(model, held=Held.INT8), CHUNK)
    rounded = logits_of(forward_of(model, held=Held.INT4), CHUNK)
    assert (rounded - exact).norm() < 0.05 * exact.norm()


@pytest.mark.parametrize(
    ("group", "changed", "reason"),
    [
        (48, {}, "share scales by 48"),
        (32, {"zeros": -1.0}, "the zeros of its codes"),
        (32, {"zeros": 0.001}, "the zeros of its codes"),
        (32, {"scales": 1 / 3}, "more than half precision"),
    ],
)
def test_codes_that_cannot_stay_what_they_are_become_whole_weights(
    group: int, changed: dict[str, float], reason: str
) -> None:
    model = in_codes(tiny("llama", **WIDE), group)
    layer: Any = model.model.layers[1].mlp.up_proj
    for name, value in changed.items():
        getattr(layer, name)[3, 1] = value
    with pytest.raises(NoNative, match=reason):
        stack_of(model)
    kernels = served(model, block_size=16, kv_cache_gib=0.01).describe()["kernels"]
    assert kernels.startswith("paged, native (native (blocks of 16): NoNative: ")


def test_codes_of_one_of_two_that_become_a_matrix_are_not_known() -> None:
    with pytest.raises(NoNative, match="only one of its gate and up"):
        stack_of(in_codes(tiny("llama", **WIDE), 32, but=("up_proj",)))


def test_a_served_models_codes_are_given_back() -> None:
    model = in_codes(tiny("llama", **WIDE), 32)
    facts = served(model, block_size=16, kv_cache_gib=0.01, dtype="int8").describe()
    assert facts["kernels"].startswith("paged, native")
    assert sum(parameter.numel() for parameter in model.parameters()) == 0
