"""Layers whose tokens go through a few of many experts."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from transformers import PreTrainedModel

from models.step.native.weights import Held
from models.step.probe import Probe
from tests.models.step.native.stacking import (
    BLOCK,
    FITTING,
    MULTIPLIED,
    Weights,
    forward_of,
    in_bfloat16,
    logits_of,
    prompt,
    stack_of,
)
from tests.models.step.tiny import VOCAB, tiny

FEW: dict[str, Any] = {"num_experts_per_tok": 2}
QWEN = {**FEW, "num_experts": 8, "moe_intermediate_size": 48}
DEEPSEEK = {
    **FEW,
    "n_routed_experts": 8,
    "moe_intermediate_size": 48,
    "n_shared_experts": 2,
    "first_k_dense_replace": 1,
    "norm_topk_prob": True,
    "routed_scaling_factor": 1.5,
}
KNOWN: dict[str, tuple[str, dict[str, Any]]] = {
    "qwen3_moe": ("qwen3_moe", {**QWEN, "norm_topk_prob": True}),
    "shares that are no whole": ("qwen3_moe", {**QWEN, "norm_topk_prob": False}),
    "layers without experts": ("qwen3_moe", {**QWEN, "mlp_only_layers": [0]}),
    "every second layer": ("qwen3_moe", {**QWEN, "decoder_sparse_step": 2}),
    "a part of a shared expert": (
        "qwen2_moe",
        {**QWEN, "shared_expert_intermediate_size": 80, "decoder_sparse_step": 1},
    ),
    "mixtral": ("mixtral", {**FEW, "num_local_experts": 8}),
    "one of them": ("mixtral", {"num_experts_per_tok": 1, "num_local_experts": 3}),
    "all of them": ("mixtral", {"num_experts_per_tok": 3, "num_local_experts": 3}),
    "many": ("mixtral", {"num_experts_per_tok": 2, "num_local_experts": 130}),
    "olmoe": ("olmoe", {**FEW, "num_experts": 8}),
    "granitemoe": (
        "granitemoe",
        {**FEW, "num_local_experts": 8, "residual_multiplier": 0.5, "attention_multiplier": 0.3},
    ),
    "gpt_oss": ("gpt_oss", {**FEW, "num_local_experts": 8, "sliding_window": 5}),
    "glm4_moe": ("glm4_moe", DEEPSEEK),
    "groups of experts": ("glm4_moe", {**DEEPSEEK, "n_group": 4, "topk_group": 2}),
    "dots1": ("dots1", DEEPSEEK),
    "ernie4_5_moe": (
        "ernie4_5_moe",
        {"moe_num_experts": 8, "moe_k": 2, "moe_intermediate_size": 48},
    ),
    "minimax_m2": ("minimax_m2", {**FEW, "num_local_experts": 8}),
    "hunyuan_v1_moe": ("hunyuan_v1_moe", {"num_experts": 8, "moe_topk": 2}),
}


def routed(kind: str, **changes: Any) -> PreTrainedModel:
    """Its biases, corrections and sinks are not the zeros that they begin as."""
    model_type, known = KNOWN[kind]
    model = tiny(model_type, **{**FITTING, **known, **changes})
    for name, numbers in (*model.named_parameters(), *model.named_buffers()):
        if "bias" in name or "sinks" in name:
            numbers.data.normal_(0, 0.3, generator=torch.Generator().manual_seed(len(name)))
    return model


@pytest.mark.parametrize("held", [Held.EXACT, Held.IN_PLACE])
@pytest.mark.parametrize("kind", KNOWN)
def test_its_logits_are_the_models_own(kind: str, held: Held) -> None:
    model = routed(kind)
    assert Probe(model).disagreement(forward_of(model, held=held), BLOCK) == ""


@pytest.mark.parametrize(("weights", "multiplied"), MULTIPLIED)
@pytest.mark.parametrize("kind", ["qwen3_moe", "a part of a shared expert", "gpt_oss", "dots1"])
def test_a_row_is_the_same_to_the_bit_whatever_it_shares_a_step_with(
    kind: str, weights: Weights, multiplied: dict[str, Any]
) -> None:
    forward = forward_of(weights(routed(kind)), **multiplied)
    ids, mine, theirs = prompt(70), (3, 9, 1, 30, 5), (2, 4, 6)
    whole = logits_of(forward, (0, ids, mine))
    parts = []
    for start, count, neighbours in ((0, 33, 1), (33, 1, 0), (34, 30, 40), (64, 6, 2)):
        chunk = (start, ids[start : start + count], mine)
        beside = [(0, prompt(neighbours, 1), theirs)] if neighbours else []
        parts.append(logits_of(forward, *beside, chunk)[neighbours:])
    assert torch.equal(torch.cat(parts), whole)
    for keep in ([], [69], [0, 5, 69]):
        assert torch.equal(logits_of(forward, (0, ids, mine), keep=keep), whole[keep])


@pytest.mark.parametrize("chosen", [1, 2, 3])
def test_of_equal_experts_those_are_chosen_that_the_model_chooses(chosen: int) -> None:
    model = routed("mixtral", num_experts_per_tok=chosen)
    for layer in model.model.layers:
        rows = layer.mlp.gate.weight.data
        rows[[1, 4, 6]], rows[[5, 7]] = rows[0].clone(), rows[2].clone()
    assert Probe(model).disagreement(forward_of(model), BLOCK) == ""


def test_the_rows_of_an_expert_may_be_many() -> None:
    model = routed("all of them")
    ids = prompt(120)
    model.set_attn_implementation("eager")
    expected = model(input_ids=torch.tensor([ids]), use_cache=False).logits[0]
    found = logits_of(forward_of(model), (0, ids, (0, 1, 2, 3, 4, 5, 6, 7)))
    torch.testing.assert_close(found, expected, rtol=1e-3, atol=1e-3)


def test_routers_are_not_rounded_to_8_bits() -> None:
    """Of two rows that 8 bits would make one, each chooses its own expert."""
    model = routed("one of them", num_local_experts=2)
    for layer in model.model.layers:
        rows = layer.mlp.gate.weight.data
        rows[1] = rows[0] * (1 + 1e-4 * torch.randn(64, generator=torch.Generator().manual_seed(0)))
    chunk = (0, prompt(60), (1, 7, 3, 0))
    exact = logits_of(forward_of(model), chunk)
    error = logits_of(forward_of(model, held=Held.INT8), chunk) - exact
    assert (error.norm(dim=1) / exact.norm(dim=1)).median() < 0.2


def test_experts_of_bfloat16_are_held_so() -> None:
    whole = stack_of(routed("qwen3_moe")).weight_bytes
    assert stack_of(in_bfloat16(routed("qwen3_moe"))).weight_bytes * 2 == whole


def test_a_row_that_is_not_a_number_disturbs_no_other() -> None:
    model, broken = routed("groups of experts"), VOCAB - 1
    model.model.embed_tokens.weight.data[broken] = torch.nan
    forward = forward_of(model)
    ids = [min(id, broken - 1) for id in prompt(20)]
    expected = logits_of(forward, (0, ids, (0, 1)))
    both = logits_of(forward, (0, [broken] * 3, (2,)), (0, ids, (0, 1)))
    assert both[:3].isnan().all()
    assert torch.equal(both[3:], expected)


@pytest.mark.parametrize("threads", [1, 5])
def test_any_number_of_threads_gives_the_same_bits(threads: int) -> None:
    model, chunk = routed("a part of a shared expert"), (0, prompt(40), (1, 7, 3))
    expected = logits_of(forward_of(model), chunk)
    forward = forward_of(model, threads=threads)
    for _ in range(20):
        assert torch.equal(logits_of(forward, chunk), expected)
