"""Layers in 8 bits against those they replace, and that rows do not see each other."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from models.step.int8 import Int8Linear, pack, quantise
from tests.models.step.driving import Driver, sequence
from tests.models.step.tiny import prompts, served, tiny

WIDE: dict[str, Any] = {"hidden_size": 128, "intermediate_size": 192, "vocab_size": 400}


def rows(count: int, width: int) -> Tensor:
    """Of very different sizes."""
    generator = torch.Generator().manual_seed(count)
    sizes = 10 ** (torch.rand(count, 1, generator=generator) * 6 - 3)
    return torch.randn(count, width, generator=generator) * sizes


def linear(inputs: int, outputs: int) -> nn.Linear:
    torch.manual_seed(0)
    return nn.Linear(inputs, outputs)


@pytest.mark.parametrize(("inputs", "outputs"), [(576, 192), (100, 77), (64, 1000)])
def test_a_layer_is_near_the_one_it_replaces(inputs: int, outputs: int) -> None:
    layer = linear(inputs, outputs)
    values = rows(9, inputs)
    exact = layer(values) - layer.bias
    ours = pack(layer.weight, layer.bias)(values) - layer.bias
    assert ((ours - exact).norm(dim=-1) < 0.02 * exact.norm(dim=-1)).all()


@pytest.mark.parametrize(("inputs", "outputs"), [(576, 192), (100, 77), (64, 1000)])
def test_a_row_depends_on_nothing_but_itself(inputs: int, outputs: int) -> None:
    """To the bit: alone, among any neighbours, and beside broken ones."""
    layer = linear(inputs, outputs)
    packed, values = pack(layer.weight, layer.bias), rows(65, inputs)
    together = packed(values)
    for start, count in ((0, 1), (7, 2), (3, 5), (20, 16), (1, 64)):
        assert torch.equal(packed(values[start : start + count]), together[start : start + count])
    values[4], values[9], values[11] = float("nan"), float("inf"), 0.0
    beside = packed(values)
    keep = [row for row in range(65) if row not in (4, 9, 11)]
    assert torch.equal(beside[keep], together[keep])
    assert torch.equal(beside[11], packed(torch.zeros(1, inputs))[0])


def _int8_names(model: PreTrainedModel) -> set[str]:
    return {name for name, module in model.named_modules() if isinstance(module, Int8Linear)}


def test_all_linear_layers_but_tiny_ones_and_routers_are_replaced() -> None:
    model = tiny("qwen2_moe", **WIDE, num_experts=64, shared_expert_intermediate_size=32)
    told = quantise(model)
    names = _int8_names(model)
    assert "lm_head" in names
    assert {"q_proj", "k_proj", "v_proj", "o_proj"} <= {n.rpartition(".")[2] for n in names}
    assert not any("shared_expert" in name or name.endswith("gate") for name in names)
    assert f"{len(names)} linear layers" in told
    assert "not " in told


def test_an_output_layer_that_shares_its_weights_leaves_the_embedding_alone() -> None:
    model = tiny("llama", **WIDE, tie_word_embeddings=True)
    embedding = model.get_input_embeddings()
    assert isinstance(embedding, nn.Embedding)
    before = embedding.weight.clone()
    quantise(model)
    assert "lm_head" in _int8_names(model)
    assert torch.equal(embedding.weight, before)


@pytest.mark.parametrize("model_type", ["llama", "gpt2", "qwen3", "gemma3_text", "mixtral"])
def test_texts_do_not_depend_on_the_batch(model_type: str) -> None:
    """Paged or not; and greedy texts alone are those in company."""
    changes = {"n_embd": 128, "n_head": 4, "n_layer": 2} if model_type == "gpt2" else {}
    asked = prompts(4)
    answers = []
    for company in (asked, *([prompt] for prompt in asked)):
        model = served(tiny(model_type, **{**WIDE, **changes}), dtype="int8", kv_cache_gib=0.01)
        assert "int8" in model.describe()["weights"]
        answers += Driver(model, most=50).run([sequence(p) for p in company], 6)
    assert answers[:4] == answers[4:]
