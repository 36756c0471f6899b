"""Tiny models with random weights, large enough that attention decides what comes next."""

from __future__ import annotations

from collections import abc
from dataclasses import replace
from typing import Any

import torch
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedModel

from configs.settings import EngineSettings
from models.build import wishes_of
from models.step.adapters import Adapter
from models.step.assemble import assemble
from models.step.model import StepModel
from models.step.wishes import Wishes

VOCAB = 61
SMALL: dict[str, Any] = {
    "vocab_size": VOCAB,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 128,
    "initializer_range": 0.3,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "tie_word_embeddings": False,
}


def tiny(model_type: str, **changes: Any) -> PreTrainedModel:
    """A random model of this architecture, in float32 unless ``dtype`` is among the changes."""
    dtype = changes.pop("dtype", torch.float32)
    torch.manual_seed(0)
    config = AutoConfig.for_model(model_type, **{**SMALL, **changes})
    model: PreTrainedModel = AutoModelForCausalLM.from_config(  # type: ignore[no-untyped-call]
        config, dtype=dtype
    )
    model.train(False)
    return model


def wished(**wishes: Any) -> Wishes:
    """These, and else what a configuration that says nothing asks for."""
    return replace(wishes_of(EngineSettings()), **wishes)


def served(
    model: PreTrainedModel, *, adapters: abc.Sequence[Adapter] = (), **wishes: Any
) -> StepModel:
    """Assembled with small blocks and a small pool."""
    small = {"block_size": 4, "slots": 6, "kv_cache_gib": 0.001}
    return assemble(model, wished(**{**small, **wishes}), adapters=adapters)


@torch.inference_mode()
def greedy(model: PreTrainedModel, prompt: list[int], new_tokens: int) -> list[int]:
    """What eager attention over the whole sequence gives, computed anew for every token."""
    before = model.config.get_text_config(decoder=True)._attn_implementation
    model.set_attn_implementation("eager")
    tokens = list(prompt)
    for _ in range(new_tokens):
        logits = model(input_ids=torch.tensor([tokens]), use_cache=False).logits
        tokens.append(int(logits[0, -1].argmax()))
    model.set_attn_implementation(before)
    return tokens[len(prompt) :]


def prompts(count: int, low: int = 1, high: int = 40) -> list[list[int]]:
    generator = torch.Generator().manual_seed(1)
    lengths = torch.randint(low, high, (count,), generator=generator).tolist()
    return [torch.randint(3, VOCAB, (n,), generator=generator).tolist() for n in lengths]
