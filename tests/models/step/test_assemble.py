from __future__ import annotations

from typing import Any

import pytest
import torch
from transformers import PreTrainedModel

from models.request import SamplingParams
from models.step.model import StepModel
from models.step.paged import PagedModel
from models.step.plain import PlainStepModel
from tests.models.step.driving import Driver, sequence
from tests.models.step.tiny import greedy, prompts, served, tiny

MAMBA = {"hidden_size": 32, "state_size": 8, "time_step_rank": 4, "initializer_range": 0.1}
RECURRENT = {
    "block_types": ["recurrent", "attention"],
    "lru_width": 32,
    "head_dim": 8,
    "attention_window_size": 16,
}
HYBRID = {
    "layer_types": ["linear_attention", "full_attention"],
    "num_local_experts": 2,
    "num_experts_per_tok": 1,
}
# Claims support and is wrong; has no attention; has attention of its own; a mask of its own;
# keeps no cache; keeps the state of a sequence where the next one overwrites it.
UNPAGED: dict[str, tuple[str, dict[str, Any]]] = {
    "minimax": ("minimax", HYBRID),
    "mamba": ("mamba", MAMBA),
    "falcon_h1": ("falcon_h1", {"mamba_d_ssm": 32, "mamba_n_heads": 4, "mamba_d_head": 8}),
    "bloom": ("bloom", {"n_layer": 2, "n_head": 4}),
    "openai-gpt": ("openai-gpt", {"n_embd": 32, "n_layer": 2, "n_head": 4}),
    "recurrent_gemma": ("recurrent_gemma", RECURRENT),
}


@pytest.fixture(scope="module", params=list(UNPAGED.values()), ids=list(UNPAGED))
def unpaged(request: pytest.FixtureRequest) -> PreTrainedModel:
    model_type, changes = request.param
    return tiny(model_type, **changes)


def test_what_cannot_be_paged_is_served_as_generate_does(unpaged: PreTrainedModel) -> None:
    cached = served(unpaged)
    assert isinstance(cached, PlainStepModel)
    assert "one sequence at a time" in cached.describe()["kernels"]
    asked = prompts(3)
    answers = Driver(cached, most=9).run([sequence(p) for p in asked], 8)
    assert answers == [_generated(unpaged, prompt, 8) for prompt in asked]


def _generated(model: PreTrainedModel, prompt: list[int], new_tokens: int) -> list[int]:
    ids = model.generate(  # type: ignore[operator]
        torch.tensor([prompt]), max_new_tokens=new_tokens, do_sample=False, eos_token_id=-1
    )
    answer: list[int] = ids[0, len(prompt) :].tolist()
    return answer


def test_the_reason_is_told(caplog: pytest.LogCaptureFixture) -> None:
    step_model = served(tiny("minimax", **HYBRID))
    assert "differ from eager" in step_model.describe()["kernels"]
    assert "differ from eager" in caplog.text


def test_a_model_without_a_cache_that_serves_reads_all_anew() -> None:
    kernels = served(tiny("recurrent_gemma", **RECURRENT)).describe()["kernels"]
    assert "all anew for each token, as what another sequence reads meanwhile changes" in kernels


def test_what_transformers_cannot_generate_with_is_refused() -> None:
    model: Any = tiny("mamba", **MAMBA)
    model.backbone.layers[1] = torch.nn.Identity()
    with pytest.raises(
        ValueError, match=r"MambaForCausalLM cannot be served: .*; without a cache: "
    ):
        served(model)


def _paged(step_model: StepModel) -> bool:
    return isinstance(step_model, PagedModel)


def test_rotary_frequencies_that_change_with_the_longest_sequence_limit_the_context() -> None:
    rope = {
        "rope_type": "longrope",
        "short_factor": [1.0] * 4,
        "long_factor": [4.0] * 4,
        "rope_theta": 10000.0,
    }
    model = tiny("phi3", rope_parameters=rope, original_max_position_embeddings=32)
    careful = served(model)
    assert _paged(careful)
    assert careful.capacity.max_context == 32
    assert not _paged(served(model, max_context=64))


def test_max_context_is_lowered_to_what_the_memory_holds() -> None:
    model = tiny("llama")
    tokens = 64
    layer_bytes = 2 * 2 * (8 + 8) * 4
    paged = served(model, kv_cache_gib=tokens * layer_bytes / 2**30)
    assert paged.capacity.max_context == tokens
    assert "kv_cache_gib" in paged.describe()["context"]
    asked = prompts(1, 20, 30)[0]
    assert Driver(paged).run([sequence(asked)], 5) == [greedy(model, asked, 5)]


def test_no_room_for_one_block_is_an_error() -> None:
    with pytest.raises(ValueError, match="does not fit"):
        served(tiny("llama"), kv_cache_gib=1e-9)


def test_more_context_than_the_model_was_made_for_is_refused() -> None:
    paged = served(tiny("llama"), max_context=10**6)
    assert paged.capacity.max_context == 128
    assert "made for" in paged.describe()["context"]


def test_an_explicit_kernel_that_is_not_there_is_an_error() -> None:
    with pytest.raises(
        ValueError, match="kernels is set to varlen, and cannot be: varlen: it needs"
    ):
        served(tiny("llama"), kernels="varlen")


def test_half_precision_passes_the_probe() -> None:
    assert _paged(served(tiny("llama").bfloat16()))


def test_experts_that_rounding_changes_are_compared_in_float32() -> None:
    experts = {"num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 32}
    model = tiny("qwen3_moe", **experts, num_hidden_layers=6, initializer_range=1.0)
    assert _paged(served(model.bfloat16()))
    assert model.dtype == torch.bfloat16
    assert not _paged(served(tiny("minimax", **HYBRID).bfloat16()))


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_blocks_in_half_precision_take_half_the_room(dtype: str) -> None:
    model = tiny("llama")
    full = served(model, kv_cache_gib=0.00005)
    half = served(tiny("llama"), kv_cache_gib=0.00005, kv_cache_dtype=dtype)
    assert _paged(half)
    assert half.capacity.blocks == 2 * full.capacity.blocks
    assert f"tokens in {dtype}" in half.describe()["kv_cache"]
    asked = prompts(4)
    answers = Driver(half).run([sequence(p) for p in asked], 6)
    expected = [greedy(model, prompt, 6) for prompt in asked]
    same = sum(
        a == b
        for one, other in zip(answers, expected, strict=True)
        for a, b in zip(one, other, strict=True)
    )
    assert same > 18


def test_a_cache_of_the_models_own_has_the_models_own_type() -> None:
    with pytest.raises(ValueError, match="kv_cache_dtype is set to float16, but"):
        served(tiny("mamba", **MAMBA), kv_cache_dtype="float16")


def test_cached_sequences_resume_after_preemption() -> None:
    model = tiny("mamba", **MAMBA)
    wish = SamplingParams(temperature=0.9, frequency_penalty=0.5)
    runs = [
        Driver(served(model), preempt=chance, most=most).run(
            [sequence(p, wish, seed=5) for p in prompts(3)], 8
        )
        for chance, most in ((0.0, 50), (0.4, 5))
    ]
    assert runs[0] == runs[1]
