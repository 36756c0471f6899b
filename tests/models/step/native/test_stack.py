from __future__ import annotations

import os
import platform
from typing import Any

import pytest
import torch
from transformers import PreTrainedModel

from models.step.native.forward import NativeForward
from models.step.native.stack import KV_FORMATS
from models.step.native.weights import Held
from models.step.probe import Probe, ProbeSpan
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

DEFAULT_ROPE = {"rope_type": "default", "rope_theta": 1e4}
KNOWN: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("llama", {}),
    "llama with biases": ("llama", {"attention_bias": True, "mlp_bias": True}),
    "llama with scaled rotations": (
        "llama",
        {
            "rope_parameters": {
                "rope_type": "llama3",
                "rope_theta": 10000.0,
                "factor": 8.0,
                "low_freq_factor": 1.0,
                "high_freq_factor": 4.0,
                "original_max_position_embeddings": 32,
            }
        },
    ),
    "as many key heads as heads": ("llama", {"num_key_value_heads": 4}),
    "one key head": ("llama", {"num_key_value_heads": 1, "num_attention_heads": 8}),
    "wide heads": ("llama", {"head_dim": 80}),
    "qwen2": ("qwen2", {}),
    "qwen3": ("qwen3", {}),
    "mistral with a window": ("mistral", {"sliding_window": 5}),
    "norms behind each half, and two tables of rotations": (
        "gemma3_text",
        {
            "num_hidden_layers": 3,
            "layer_types": ["sliding_attention", "full_attention", "sliding_attention"],
            "sliding_window": 5,
            "rope_parameters": {
                "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 1e6},
                "sliding_attention": {"rope_type": "default", "rope_theta": 1e4},
            },
        },
    ),
    "capped scores and logits": (
        "gemma2",
        {"attn_logit_softcapping": 2.0, "final_logit_softcapping": 3.0, "sliding_window": 5},
    ),
    "fused matrices, a part of each head rotated": (
        "phi3",
        {
            "rope_parameters": {
                "rope_type": "default",
                "rope_theta": 1e4,
                "partial_rotary_factor": 0.5,
            }
        },
    ),
    "layers without positions": ("smollm3", {"no_rope_layers": [1, 0]}),
    "multipliers": (
        "granite",
        {
            "residual_multiplier": 0.3,
            "attention_multiplier": 0.2,
            "embedding_multiplier": 3.0,
            "logits_scaling": 5.0,
        },
    ),
    "norms behind each half only, and of all heads together": ("olmo2", {}),
    "norms behind, one table for windows": (
        "olmo3",
        {"layer_types": ["sliding_attention", "full_attention"], "sliding_window": 5},
    ),
    "rotations of pairs": ("ernie4_5", {}),
    "rotations of pairs in a part of each head": ("glm4", {"partial_rotary_factor": 0.5}),
    "norms behind each half, and of each head": ("exaone4", {}),
    "heads normed once they are rotated": ("hunyuan_v1_dense", {}),
    "halves side by side, norms that centre": (
        "cohere",
        {"logit_scale": 0.3, "use_qk_norm": True},
    ),
    "norms that centre, with biases": ("stablelm", {"partial_rotary_factor": 0.5}),
    "a hybrid that mixes nothing in": (
        "granitemoehybrid",
        {
            "layer_types": ["attention"] * 2,
            "num_local_experts": 0,
            "shared_intermediate_size": 80,
            "position_embedding_type": "rope",
            "residual_multiplier": 0.3,
            "attention_multiplier": 0.2,
            "mamba_n_heads": 8,
            "mamba_d_head": 16,
        },
    ),
    "no gates": ("starcoder2", {"use_bias": True}),
    "no gates, halves side by side": ("phi", {"partial_rotary_factor": 0.5}),
    "no gates, a gelu by the error function": ("starcoder2", {"hidden_act": "gelu"}),
    "no gates, matrices fused by head": (
        "gpt_neox",
        {"rope_parameters": {**DEFAULT_ROPE, "partial_rotary_factor": 0.5}},
    ),
    "no gates, a square": ("arcee", {}),
    "tied": ("llama", {"tie_word_embeddings": True}),
    "any vocabulary": ("llama", {"vocab_size": 33}),
}


@pytest.mark.parametrize("held", [Held.EXACT, Held.IN_PLACE])
@pytest.mark.parametrize("kind", KNOWN)
def test_its_logits_are_the_models_own(kind: str, held: Held) -> None:
    model_type, changes = KNOWN[kind]
    model = tiny(model_type, **{**FITTING, **changes})
    assert Probe(model).disagreement(forward_of(model, held=held), BLOCK) == ""


@pytest.mark.parametrize(
    ("changes", "least", "most"),
    [
        ({"kv_dtype": torch.float16}, 1e-5, 1e-2),
        ({"kv_dtype": torch.bfloat16}, 1e-4, 5e-2),
        ({"arithmetic": torch.bfloat16}, 1e-3, 2e-2),
        ({"held": Held.INT8}, 1e-3, 5e-2),
        ({"held": Held.INT4}, 2e-2, 0.4),
    ],
)
def test_rounding_costs_little(changes: dict[str, Any], least: float, most: float) -> None:
    model = in_bfloat16(tiny("llama", **FITTING, initializer_range=0.1))
    chunk = (0, prompt(60), (1, 7, 3, 0))
    exact = logits_of(forward_of(model), chunk)
    error = (logits_of(forward_of(model, **changes), chunk) - exact).norm() / exact.norm()
    assert least < error < most


@pytest.mark.parametrize("window", [None, 20])
@pytest.mark.parametrize("head_dim", [32, 48, 80])
def test_heads_of_any_width_attend_to_blocks_of_bfloat16(head_dim: int, window: int | None) -> None:
    changes = {**FITTING, "head_dim": head_dim, "sliding_window": window}
    model = tiny("mistral", **changes, initializer_range=0.1)
    chunks = (0, prompt(75), (1, 7, 3, 0, 5)), (0, prompt(1, 1), (4,))
    exact = logits_of(forward_of(model), *chunks)
    error = logits_of(forward_of(model, kv_dtype=torch.bfloat16), *chunks) - exact
    assert 1e-4 < error.norm() / exact.norm() < 5e-2


def test_weights_of_bfloat16_are_held_so_and_lose_nothing() -> None:
    model = tiny("llama", **FITTING)
    whole = stack_of(model).weight_bytes
    assert stack_of(in_bfloat16(model)).weight_bytes * 2 == whole
    assert Probe(model).disagreement(forward_of(model), BLOCK) == ""


@pytest.mark.parametrize(("weights", "multiplied"), MULTIPLIED)
@pytest.mark.parametrize(
    ("model_type", "window"), [("mistral", None), ("mistral", 20), ("gemma3_text", 20)]
)
def test_a_row_is_the_same_to_the_bit_whatever_it_shares_a_step_with(
    weights: Weights, multiplied: dict[str, Any], model_type: str, window: int | None
) -> None:
    model = weights(tiny(model_type, **FITTING, sliding_window=window))
    forward = forward_of(model, **multiplied)
    ids, mine, theirs = prompt(70), (3, 9, 1, 30, 5), (2, 4, 6)
    whole = logits_of(forward, (0, ids, mine))
    parts = []
    for start, count, neighbours in ((0, 33, 1), (33, 1, 0), (34, 30, 40), (64, 6, 2)):
        chunk = (start, ids[start : start + count], mine)
        beside = [(0, prompt(neighbours, 1), theirs)] if neighbours else []
        parts.append(logits_of(forward, *beside, chunk)[neighbours:])
    assert torch.equal(torch.cat(parts), whole)


@pytest.mark.parametrize(("weights", "multiplied"), MULTIPLIED)
@pytest.mark.parametrize("model_type", ["llama", "gemma2", "cohere"])
def test_a_row_is_the_same_to_the_bit_whichever_rows_are_kept(
    weights: Weights, multiplied: dict[str, Any], model_type: str
) -> None:
    forward = forward_of(weights(tiny(model_type, **FITTING)), **multiplied)
    chunks = ((0, prompt(37), (3, 9, 1)), (0, prompt(1, 1), (2,)), (0, prompt(20, 2), (4, 6)))
    whole = logits_of(forward, *chunks)
    for keep in ([], [36], [57], [36, 37, 57], [0, 3, 4, 5, 36, 40, 41, 57]):
        assert torch.equal(logits_of(forward, *chunks, keep=keep), whole[keep])


@pytest.mark.parametrize("arithmetic", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("kv_dtype", KV_FORMATS)
def test_what_is_rounded_later_is_as_if_it_had_been_from_the_beginning(
    kv_dtype: torch.dtype, arithmetic: torch.dtype
) -> None:
    model, chunk = in_bfloat16(tiny("llama", **FITTING)), (0, prompt(40), (1, 7, 3))
    stack = stack_of(model)
    exact = logits_of(NativeForward(stack, BLOCK), chunk)
    stack.round_to(kv_dtype, arithmetic)
    stack.allocate(32)
    rounded = logits_of(NativeForward(stack, BLOCK), chunk)
    begun = forward_of(model, kv_dtype=kv_dtype, arithmetic=arithmetic)
    assert torch.equal(rounded, logits_of(begun, chunk))
    assert torch.equal(rounded, exact) == (kv_dtype == arithmetic == torch.float32)


@pytest.mark.parametrize("kv_dtype", KV_FORMATS)
@pytest.mark.parametrize("length", [20, 21])
def test_what_a_block_held_before_does_not_matter(length: int, kv_dtype: torch.dtype) -> None:
    """Not even what is not a number, which 0 times does not make one."""
    model = tiny("llama", **FITTING)
    broken = VOCAB - 1
    model.model.embed_tokens.weight.data[broken] = torch.nan
    forward = forward_of(model, kv_dtype=kv_dtype)
    ids = [min(id, broken - 1) for id in prompt(length)]
    expected = logits_of(forward, (0, ids, (0, 1)))
    assert logits_of(forward, (0, [broken] * 32, (1, 0))).isnan().all()
    assert torch.equal(logits_of(forward, (0, ids, (0, 1))), expected)
    grown = [logits_of(forward, (at, ids[at : at + 1], (1, 0))) for at in range(length)]
    assert torch.equal(torch.cat(grown), expected)


def test_a_head_may_have_a_bias() -> None:
    model = tiny("llama", **FITTING)
    model.lm_head.bias = torch.nn.Parameter(torch.randn(VOCAB))
    assert Probe(model).disagreement(forward_of(model), BLOCK) == ""


def test_memory_that_is_not_there_is_an_error() -> None:
    stack = stack_of(tiny("llama", **FITTING))
    with pytest.raises(MemoryError):
        stack.allocate(2**31 - 1)


def test_nothing_outside_the_pool_or_after_the_end_is_touched() -> None:
    forward = forward_of(tiny("llama", **FITTING))
    beyond = (0, prompt(5), (32,)), (0, prompt(20), (1,)), (127, prompt(2), (0,) * 9)
    before = (0, prompt(5), (-1,)), (-1, prompt(2), (0,)), (0, prompt(0), (0,))
    for chunk in (*beyond, *before):
        with pytest.raises(AssertionError):
            logits_of(forward, chunk)
    layout = forward.layout([ProbeSpan(0, 5, (0,))])
    for length in (4, 6):
        with pytest.raises(AssertionError):
            forward(layout, torch.tensor(prompt(length)), torch.arange(4))
    forward._stack.close()
    with pytest.raises(AssertionError):
        logits_of(forward, (0, prompt(5), (1,)))


def test_a_forked_process_is_told() -> None:
    forward = forward_of(tiny("llama", **FITTING))
    child = os.fork()
    if not child:
        try:
            logits_of(forward, (0, prompt(5), (1,)))
        except RuntimeError:
            os._exit(7)
        os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7


def test_ids_beyond_the_vocabulary_are_an_error() -> None:
    forward = forward_of(tiny("llama", **FITTING))
    for id in (VOCAB, -1):
        with pytest.raises(IndexError, match=f"within the {VOCAB}"):
            logits_of(forward, (0, [5, id], (0,)))


@pytest.mark.slow
@pytest.mark.skipif(platform.machine() != "x86_64", reason="names processors of this kind")
@pytest.mark.parametrize("processor", ["x86-64", "haswell"])
def test_older_processors_compute_the_same(processor: str) -> None:
    """Compiled without the instructions that this machine may have; the slowest has none."""
    whole, halved = tiny("qwen3", **FITTING), in_bfloat16(tiny("qwen3", **FITTING))
    assert Probe(whole).disagreement(forward_of(whole, processor=processor), BLOCK) == ""
    chunk = (0, prompt(40), (1, 7, 3))
    cases: list[tuple[PreTrainedModel, dict[str, Any]]] = [
        (whole, {"held": Held.INT8}),
        (whole, {"held": Held.INT4}),
        (halved, {"arithmetic": torch.bfloat16}),
        (whole, {"kv_dtype": torch.float16}),
        (whole, {"kv_dtype": torch.bfloat16}),
    ]
    for model, changes in cases:
        here = logits_of(forward_of(model, **changes), chunk)
        there = logits_of(forward_of(model, processor=processor, **changes), chunk)
        assert (there - here).norm() / here.norm() < 0.02


@pytest.mark.parametrize("threads", [1, 5])
def test_any_number_of_threads_gives_the_same_bits(threads: int) -> None:
    model = tiny("llama", **FITTING)
    chunk = (0, prompt(40), (1, 7, 3))
    expected = logits_of(forward_of(model), chunk)
    assert torch.equal(logits_of(forward_of(model, threads=threads), chunk), expected)
