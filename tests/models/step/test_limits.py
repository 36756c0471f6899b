from __future__ import annotations

from typing import Any

import pytest
from transformers import AutoConfig, PreTrainedConfig

from models.step.limits import UNSTATED, context_limit, paged_objection


def config(model_type: str, **values: Any) -> PreTrainedConfig:
    made = AutoConfig.for_model(model_type, **values)
    assert isinstance(made, PreTrainedConfig)
    return made


def test_the_limit_is_what_the_model_was_made_for() -> None:
    assert context_limit(config("llama", max_position_embeddings=512), None) == (512, "")
    assert context_limit(config("gpt2", n_positions=256), None) == (256, "")
    assert context_limit(config("mpt", max_seq_len=128), None) == (128, "")
    assert context_limit(config("whisper", max_target_positions=64), None) == (64, "")


def test_a_wish_lowers_it_but_cannot_raise_it() -> None:
    llama = config("llama", max_position_embeddings=512)
    assert context_limit(llama, 100) == (100, "")
    limit, note = context_limit(llama, 1000)
    assert limit == 512
    assert "lowered from 1000" in note


def test_the_text_model_of_a_wrapper_counts() -> None:
    wrapper = config("gemma3", text_config={"max_position_embeddings": 321})
    assert context_limit(wrapper, None)[0] == 321


def test_without_a_limit_one_is_assumed_and_said() -> None:
    assert context_limit(config("mamba"), None) == (UNSTATED, "the model names no limit")
    assert context_limit(config("mamba"), 10**6) == (10**6, "")


def test_rotary_frequencies_of_a_step_must_not_depend_on_its_longest_sequence() -> None:
    rope = {"rope_type": "longrope", "short_factor": [1.0], "long_factor": [2.0], "rope_theta": 1e4}
    sizes = {"max_position_embeddings": 4096, "original_max_position_embeddings": 1024}
    phi = config("phi3", rope_parameters=rope, hidden_size=8, num_attention_heads=4, **sizes)
    assert context_limit(phi, None)[0] == 1024
    assert context_limit(phi, 2048) == (2048, "")
    assert paged_objection(phi, 1024, []) == ""
    assert "1024" in paged_objection(phi, 2048, [])


@pytest.mark.parametrize(
    ("windows", "objects"), [([None, None], True), ([64, 64], False), ([64, None], False)]
)
def test_a_window_must_reach_the_attention_function(
    windows: list[int | None], objects: bool
) -> None:
    mistral = config("mistral", sliding_window=64)
    assert bool(paged_objection(mistral, 128, windows)) == objects
    assert paged_objection(mistral, 64, windows) == ""


def test_each_sliding_layer_must_pass_its_window() -> None:
    gemma = config(
        "gemma3_text",
        num_hidden_layers=2,
        sliding_window=64,
        layer_types=["sliding_attention", "sliding_attention"],
    )
    assert paged_objection(gemma, 128, [64, 64]) == ""
    assert "hides" in paged_objection(gemma, 128, [64, None])


def test_attention_in_chunks_is_refused_beyond_one() -> None:
    llama4 = config("llama4_text", attention_chunk_size=256)
    assert paged_objection(llama4, 256, [None]) == ""
    assert "chunks of 256" in paged_objection(llama4, 257, [None])
