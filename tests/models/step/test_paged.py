from __future__ import annotations

from typing import Any

import pytest

from models.request import SamplingParams
from models.schedule.sequence import Chunk
from models.step.paged import PagedModel
from tests.models.step.driving import Driver, sequence
from tests.models.step.tiny import SMALL, VOCAB, greedy, prompts, served, tiny

NEW = 12
ARCHITECTURES: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("llama", {}),
    "llama with one head a group": ("llama", {"num_key_value_heads": 4}),
    "qwen3": ("qwen3", {"head_dim": 16}),
    "mistral with a short window": ("mistral", {"sliding_window": 7}),
    "gemma2 with soft caps and windows": (
        "gemma2",
        {"head_dim": 16, "sliding_window": 5, "attn_logit_softcapping": 2.0},
    ),
    "gemma3 with windows": (
        "gemma3_text",
        {
            "head_dim": 16,
            "sliding_window": 6,
            "layer_types": ["sliding_attention", "full_attention"],
        },
    ),
    "gpt_oss with sinks": (
        "gpt_oss",
        {
            "head_dim": 16,
            "num_local_experts": 2,
            "num_experts_per_tok": 1,
            "sliding_window": 5,
            "layer_types": ["sliding_attention", "full_attention"],
        },
    ),
    "deepseek_v3 with narrower values": (
        "deepseek_v3",
        {
            "num_key_value_heads": 4,
            "q_lora_rank": None,
            "kv_lora_rank": 8,
            "qk_rope_head_dim": 8,
            "qk_nope_head_dim": 8,
            "v_head_dim": 12,
            "first_k_dense_replace": 2,
        },
    ),
    "stablelm with layer norms in place of others": ("stablelm", {}),
    "whisper with no choice of logits": (
        "whisper",
        {
            "d_model": 32,
            "decoder_layers": 2,
            "decoder_attention_heads": 4,
            "decoder_ffn_dim": 48,
            "max_target_positions": 128,
            "init_std": 0.3,
        },
    ),
    "got_ocr2 that never tells its wrapper how it attends": (
        "got_ocr2",
        {
            "text_config": {"model_type": "qwen2", **SMALL},
            "vision_config": {
                "hidden_size": 16,
                "num_hidden_layers": 1,
                "num_attention_heads": 2,
                "global_attn_indexes": [],
                "mlp_dim": 16,
                "output_channels": 8,
            },
        },
    ),
}


@pytest.fixture(scope="module", params=list(ARCHITECTURES.values()), ids=list(ARCHITECTURES))
def model(request: pytest.FixtureRequest) -> Any:
    model_type, changes = request.param
    return tiny(model_type, **changes)


def test_random_chunks_equal_full_recomputation(model: Any) -> None:
    paged = served(model)
    assert isinstance(paged, PagedModel), paged.describe()
    asked = prompts(6)
    driver = Driver(paged, preempt=0.2, from_slot=0.5)
    assert driver.run([sequence(p) for p in asked], NEW) == [greedy(model, p, NEW) for p in asked]


@pytest.fixture(scope="module")
def llama() -> Any:
    return tiny("llama")


def test_long_prompts_in_one_chunk_and_single_tokens_give_the_same(llama: Any) -> None:
    asked = prompts(4, 20, 60)
    expected = [greedy(llama, p, NEW) for p in asked]
    for most in (1, 100):
        driver = Driver(served(llama), most=most)
        assert driver.run([sequence(p) for p in asked], NEW) == expected


def test_sequences_share_blocks_within_the_step_that_fills_them(llama: Any) -> None:
    """A block is registered when planned: its user may come in the very step that writes it."""
    paged = served(llama)
    prompt = prompts(1, 30, 31)[0]
    first, second = sequence(prompt), sequence([*prompt[:8], 5])
    chunks = [
        Chunk(first, 0, 30, True, tuple(prompt), False, 0, tuple(range(8)), tuple(prompt)),
        Chunk(second, 8, 1, True, (5,), False, 1, (0, 1, 9), tuple(second.tokens)),
    ]
    assert paged.launch(chunks).tokens() == [
        *greedy(llama, first.tokens, 1),
        *greedy(llama, second.tokens, 1),
    ]


def test_a_token_left_on_the_device_counts_like_one_fed_from_the_host(llama: Any) -> None:
    wish = SamplingParams(temperature=0.8, frequency_penalty=1.0, repetition_penalty=1.3)
    runs = [
        Driver(served(llama), from_slot=chance).run(
            [sequence(p, wish, seed=i) for i, p in enumerate(prompts(5))], NEW
        )
        for chance in (0.0, 1.0)
    ]
    assert runs[0] == runs[1]


def test_seeded_texts_are_the_same_alone_and_among_neighbours(llama: Any) -> None:
    wishes = [
        SamplingParams(temperature=1.0),
        SamplingParams(temperature=0.7, top_p=0.8),
        SamplingParams(temperature=1.2, top_k=5, presence_penalty=0.5),
        SamplingParams(temperature=0.9, min_p=0.1),
        SamplingParams(temperature=0),
    ]
    asked = prompts(5)
    together = Driver(served(llama), preempt=0.2).run(
        [sequence(p, w, seed=9) for p, w in zip(asked, wishes, strict=True)], NEW
    )
    for prompt, wish, answer in zip(asked, wishes, together, strict=True):
        alone = Driver(served(llama), seed=3).run([sequence(prompt, wish, seed=9)], NEW)
        assert alone == [answer]


def test_a_step_may_sample_nothing(llama: Any) -> None:
    paged = served(llama)
    chunk = Chunk(sequence([4, 5, 6]), 0, 2, False, (4, 5), False, 0, (0,), (4, 5))
    assert paged.launch([chunk]).tokens() == []


def test_no_logits_are_asked_for_twice(llama: Any) -> None:
    tokens = (4, 5, 6)
    asked = sequence([*tokens, 7])
    chunk = Chunk(asked, 0, 3, True, tokens, False, 0, (0,), tokens, targets=(5, 6, 7))
    with pytest.raises(AssertionError, match="twice"):
        served(llama).launch([chunk])


def test_capacity_is_what_was_asked_for_and_fits(llama: Any) -> None:
    capacity = served(llama, max_context=40, prefix_cache=False).capacity
    assert (capacity.max_context, capacity.vocab_size, capacity.slots) == (40, VOCAB, 6)
    assert capacity.block_size == 4
    assert capacity.blocks == 6 * 10
    assert not capacity.prefix_cache
