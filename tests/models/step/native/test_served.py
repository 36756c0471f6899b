from __future__ import annotations

from typing import Any

import pytest
import torch
from transformers import PreTrainedModel

from models.request import SamplingParams
from models.step import native_way
from models.step.assemble import _compared
from models.step.attention import PAGED
from models.step.model import StepModel
from models.step.native.team import Team
from models.step.native_way import NativeWay
from models.step.probe import Probe, blocks_needed
from models.step.trace import Trace
from models.step.weights import parameters_of
from models.step.widen import widen
from tests.models.step.driving import Driver, sequence
from tests.models.step.native.stacking import FITTING
from tests.models.step.tiny import greedy, prompts, served, tiny

NEW = 12


def native(model: PreTrainedModel, **wishes: Any) -> StepModel:
    step_model = served(model, block_size=16, kv_cache_gib=0.01, **wishes)
    assert step_model.describe()["kernels"].startswith("paged, native (")
    return step_model


def experts(model_type: str = "qwen3_moe", **changes: Any) -> PreTrainedModel:
    few = {"num_experts_per_tok": 2, "num_experts": 8, "moe_intermediate_size": 48}
    if model_type == "gpt_oss":
        few = {"num_experts_per_tok": 2, "num_local_experts": 8, "sliding_window": 5}
    return tiny(model_type, **{**FITTING, **few, **changes})


@pytest.mark.parametrize("model_type", ["llama", "qwen3", "gemma3_text", "qwen3_moe", "gpt_oss"])
def test_random_chunks_equal_full_recomputation(model_type: str) -> None:
    asked = prompts(6)
    expected = [greedy(experts(model_type), p, NEW) for p in asked]
    driver = Driver(native(experts(model_type)), preempt=0.2)
    assert driver.run([sequence(p) for p in asked], NEW) == expected


@pytest.mark.parametrize("model_type", ["llama", "qwen3_moe"])
@pytest.mark.parametrize(
    ("dtype", "wishes"),
    [
        (torch.float32, {"dtype": "int8"}),
        (torch.float32, {"dtype": "int4"}),
        (torch.float32, {"kv_cache_dtype": "bfloat16"}),
        (torch.float32, {}),
        (torch.bfloat16, {}),
    ],
)
def test_seeded_texts_are_the_same_alone_and_among_neighbours(
    model_type: str, dtype: torch.dtype, wishes: dict[str, Any]
) -> None:
    asked, wish = prompts(5), SamplingParams(temperature=0.9, top_p=0.9)
    model = experts(model_type, dtype=dtype, initializer_range=0.1)
    step_model = native(model, **wishes)
    together = Driver(step_model, preempt=0.2).run([sequence(p, wish, seed=9) for p in asked], NEW)
    for prompt, answer in zip(asked, together, strict=True):
        assert Driver(step_model, seed=3).run([sequence(prompt, wish, seed=9)], NEW) == [answer]


def test_what_it_does_is_told() -> None:
    multiplies = Team(1).multiplies_bfloat16
    facts = native(tiny("llama", **FITTING), dtype="int8").describe()
    assert facts["weights"].endswith("in int8")
    assert f"tokens in {'bfloat16' if multiplies else 'float16'}" in facts["kv_cache"]
    facts = native(tiny("llama", **FITTING, initializer_range=0.1), dtype="int4").describe()
    assert facts["weights"].endswith("in int4, values and the output layer in int8")
    facts = native(tiny("llama", **FITTING)).describe()
    assert facts["weights"].endswith("in float32")
    assert "tokens in float32" in facts["kv_cache"]
    facts = native(tiny("llama", **FITTING, dtype=torch.bfloat16)).describe()
    assert facts["weights"].endswith(
        "in bfloat16" if multiplies else "in bfloat16, multiplied as float32"
    )
    assert "tokens in bfloat16" in facts["kv_cache"]


def test_the_models_own_memory_is_given_back() -> None:
    model = tiny("llama", **FITTING)
    native(model)
    assert sum(parameter.numel() for parameter in model.parameters()) == 0
    routed = experts("gpt_oss")
    native(routed)
    assert sum(parameter.numel() for parameter in routed.parameters()) == 0


def test_torch_serves_what_is_wished_so_or_not_known() -> None:
    assert served(tiny("llama", **FITTING), block_size=16, kernels="sdpa").describe()[
        "kernels"
    ] == ("paged, sdpa")
    other = tiny("llama", **FITTING)
    other.model.layers[0].mlp.act_fn = torch.nn.ReLU()
    kernels = served(other, block_size=16).describe()
    assert kernels["kernels"].startswith("paged, sdpa (native (blocks of 16): its paged logits dif")
    kernels = served(tiny("llama", **FITTING), block_size=4).describe()
    assert kernels["kernels"] == "paged, sdpa (native: blocks of 4 tokens are not made of 16)"


def test_what_cannot_be_read_is_served_by_torch() -> None:
    other = tiny("llama", **FITTING)
    vars(other)["get_output_embeddings"] = None
    kernels = served(other, block_size=16).describe()["kernels"]
    assert kernels.startswith("paged, sdpa (native: TypeError: 'NoneType' object is not callable")


def test_four_bits_are_refused_where_only_torch_would_serve() -> None:
    for changes in ({"block_size": 4}, {"block_size": 16, "kernels": "sdpa"}):
        with pytest.raises(ValueError, match="int4, which only native kernels compute: "):
            served(tiny("llama", **FITTING), dtype="int4", **changes)
    with pytest.raises(ValueError, match="int4, which only native kernels compute: "):
        served(tiny("mamba"), dtype="int4")


def test_native_kernels_that_cannot_be_are_an_error_if_they_were_asked_for() -> None:
    with pytest.raises(ValueError, match="kernels is set to native, and cannot be: native: blocks"):
        served(tiny("llama", **FITTING), block_size=4, kernels="native")


def test_sampling_shares_the_threads_of_the_steps() -> None:
    step_model = native(tiny("llama", **FITTING))
    assert step_model._kernels._team is step_model._forward._stack.team  # type: ignore[attr-defined]


def test_where_rounding_sends_tokens_to_other_experts_float32_decides() -> None:
    blocks = blocks_needed(16)
    model = experts(dtype=torch.bfloat16, num_hidden_layers=6, num_experts_per_tok=1)
    model.set_attn_implementation(PAGED)
    way = NativeWay(model, Trace(model), block_size=16, positions=64, kv_dtype=None, bits=None)
    assert Probe(model).disagreement(way.try_out(blocks), 16)
    assert _compared(model, Probe(model), way, way.try_out(blocks), blocks) == ""
    forward = way.try_out(blocks)
    for layer in model.model.layers:
        layer.mlp.experts.act_fn = torch.nn.Tanh()
    assert Probe(model).disagreement(forward, 16)
    assert "differ" in _compared(model, Probe(model), way, forward, blocks)


def test_positions_that_count_in_a_way_of_their_own_are_left_to_the_model() -> None:
    """Only beyond ``original_max_position_embeddings``, where no comparison at load comes to."""
    rope = {
        "rope_type": "yarn",
        "rope_theta": 10000.0,
        "factor": 4.0,
        "original_max_position_embeddings": 40,
        "llama_4_scaling_beta": 0.5,
    }
    model = tiny("ministral3", **FITTING, rope_parameters=rope)
    step_model = served(model, block_size=16, kv_cache_gib=0.01)
    assert "no llama_4_scaling_beta" in step_model.describe()["kernels"]
    asked = prompts(3, 50, 80)
    answers = Driver(step_model).run([sequence(p) for p in asked], 4)
    assert answers == [greedy(model, p, 4) for p in asked]


def test_rotary_frequencies_that_change_later_are_known_up_to_there() -> None:
    rope = {"rope_type": "longrope", "rope_theta": 10000.0}
    factors = {"short_factor": [1.0] * 4 + [2.0] * 4, "long_factor": [4.0] * 8}
    model = tiny(
        "phi3", **FITTING, rope_parameters=rope | factors, original_max_position_embeddings=100
    )
    asked = prompts(3, 50, 90)
    expected = [greedy(model, p, NEW) for p in asked]
    step_model = native(model)
    assert step_model.capacity.max_context == 100
    assert Driver(step_model).run([sequence(p) for p in asked], NEW) == expected


def test_weights_of_half_precision_need_half_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """What was widened is packed from what it was, so room for copies of that is enough."""
    whole, half = (tiny("llama", **FITTING, dtype=d) for d in (torch.float32, torch.bfloat16))
    numbers = parameters_of(whole) + whole.model.embed_tokens.weight.numel()
    monkeypatch.setattr(native_way, "available_memory", lambda: 3 * numbers)
    kernels = served(whole, block_size=16, kv_cache_gib=0.01).describe()["kernels"]
    assert "copies of its weights take up to" in kernels
    assert widen(half)
    native(half)
