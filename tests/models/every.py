"""A tiny random model of every causal architecture that transformers has, from its own defaults.

Each has all the kinds of layers that its default config mixes. Windows, chunks and selections of
keys are ``REACH`` tokens long: more than the comparison at load reads, fewer than the texts do.
"""

from __future__ import annotations

from collections import abc
from typing import Any

import torch
from transformers import (
    AutoModelForCausalLM,
    AutoModelForImageTextToText,
    PreTrainedConfig,
    PreTrainedModel,
)
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

from tests.models.every_change import CHANGES

VOCAB, CONTEXT, REACH = 320, 256, 40
LAYERS = ("num_hidden_layers", "n_layer", "n_layers", "num_layers")
WRAPPED = ("mllama",)  # saved as what reads images too, served as its text model
SIZES: dict[int, str] = {
    VOCAB: "vocab_size unpadded_vocab_size vocab_size_per_layer_input decoder_vocab_size",
    CONTEXT: "max_position_embeddings n_positions n_ctx max_seq_len max_target_positions",
    96: "intermediate_size ffn_dim ffn_hidden_size dim_ff dff n_inner moe_intermediate_size"
    " shared_expert_intermediate_size shared_intermediate_size decoder_ffn_dim encoder_ffn_dim"
    " intermediate_size_mlp expert_ffn_hidden_size dense_intermediate_size mlp_dim d_inner"
    " shared_experts_intermediate_size moe_shared_expert_intermediate_size feed_forward_size",
    64: "hidden_size d_model n_embd emb_dim embedding_dim embedding_size word_embed_proj_dim"
    " lru_width hidden_size_global input_embedding_size attention_hidden_size",
    REACH: "sliding_window window_size sliding_window_size local_attention attention_window_size"
    " keep_window_size attention_chunk_size local_attention_window_len index_topk",
    16: "head_dim swa_head_dim kv_channels attention_head_dim global_head_dim dim_head"
    " linear_head_dim attention_head_size qk_nope_head_dim v_head_dim kv_lora_rank q_lora_rank"
    " o_lora_rank index_head_dim linear_key_head_dim linear_value_head_dim mamba_d_head"
    " mamba_head_dim mamba_headdim mamba_chunk_size chunk_size query_pre_attn_scalar",
    8: "qk_rope_head_dim index_block_size mamba_d_state state_size ssm_state_size mamba_n_heads"
    " mamba_num_heads n_mamba_heads hidden_size_per_layer_input rotary_dim",
    4: "num_attention_heads n_head n_heads attention_heads decoder_attention_heads num_heads"
    " encoder_attention_heads swa_num_attention_heads num_decoder_attention_heads"
    " num_encoder_attention_heads num_experts n_routed_experts num_local_experts moe_num_experts"
    " mamba_dt_rank time_step_rank linear_num_value_heads decoder_layers encoder_layers"
    " num_decoder_layers num_encoder_layers num_blocks depth " + " ".join(LAYERS),
    3: "index_topk_blocks",
    2: "swa_num_key_value_heads kv_n_heads num_kv_heads num_query_groups num_experts_per_tok"
    " moe_topk num_experts_per_token moe_top_k moe_k linear_num_key_heads index_n_heads"
    " num_kv_shared_layers max_window_layers eos_token_id sep_token_id type_vocab_size hc_mult",
    1: "n_group num_expert_group n_groups topk_group first_k_dense_replace num_dense_layers"
    " bos_token_id decoder_start_token_id",
    0: "pad_token_id",
}
SIZE = {name: size for size, names in SIZES.items() for name in names.split()}


def tiny_model(model_type: str) -> PreTrainedModel:
    """In float32, with weights so large that what comes next depends on all that came before."""
    auto: Any = AutoModelForImageTextToText if model_type in WRAPPED else AutoModelForCausalLM
    model: PreTrainedModel = auto.from_config(tiny_config(model_type), dtype=torch.float32)
    _randomise(model)
    model.train(False)
    return model


def tiny_config(model_type: str) -> PreTrainedConfig:
    made: abc.Callable[..., PreTrainedConfig] = CONFIG_MAPPING[model_type]
    changes = CHANGES.get(model_type, {})
    if changes.get("whole"):  # its defaults fit nothing smaller
        return made(**{name: value for name, value in changes.items() if name != "whole"})
    sizes = _small(made().to_dict())
    for name, value in changes.items():
        both = isinstance(value, dict) and isinstance(sizes.get(name), dict)
        sizes[name] = {**sizes[name], **value} if both else value
    return made(**{name: value for name, value in sizes.items() if value is not ...})


def _small(values: dict[str, Any]) -> dict[str, Any]:
    """The numbers among a config's ``values`` that must be smaller, its sub-configs' too."""
    sizes = {
        name: _small(value) if isinstance(value, dict) else _size(name, value)
        for name, value in values.items()
        if (isinstance(value, dict) and name.endswith("config"))
        or (name in SIZE and isinstance(value, int | float) and not isinstance(value, bool))
    }
    for name, value in values.items():
        if name.endswith(("_token_id", "_token_index")) and isinstance(value, int) and value >= 300:
            sizes.setdefault(name, 300 + value % 15)
    if values.get("num_key_value_heads"):
        alike = values["num_key_value_heads"] == values.get("num_attention_heads")
        sizes["num_key_value_heads"] = 4 if alike else 2
    if "model_type" in values:
        sizes["model_type"] = values["model_type"]
    return sizes | _layers(values)


def _size(name: str, value: float) -> float:
    return type(value)(SIZE[name])


def _layers(values: dict[str, Any]) -> dict[str, Any]:
    """What is said of each layer, for one layer of each kind and at least four."""
    name = next((name for name in LAYERS if isinstance(values.get(name), int)), None)
    count = values[name] if name else 0
    each = {key: v for key, v in values.items() if isinstance(v, list) and len(v) == count > 1}
    if name is None or not each:
        return {}
    kinds = {repr(row): i for i, row in reversed([*enumerate(zip(*each.values(), strict=True))])}
    picked = sorted(kinds.values())[:6]
    picked = sorted([*picked, *range(max(0, 4 - len(picked)))])
    return {name: len(picked), **{key: [v[i] for i in picked] for key, v in each.items()}}


@torch.no_grad()
def _randomise(model: PreTrainedModel) -> None:
    generator = torch.Generator().manual_seed(0)
    configs = (model.config, model.config.get_text_config(decoder=True))
    tied = any(getattr(config, "tie_word_embeddings", False) for config in configs)
    for name, weight in model.named_parameters():
        drawn = torch.randn(weight.shape, generator=generator)
        embeds = any(part in name for part in ("embed", "wte", "wpe"))
        if weight.dim() <= 1:
            weight.add_(0.1 * drawn)
        elif "A_log" not in name and "dt" not in name.rpartition(".")[2] and weight.numel() > 4:
            weight.copy_(
                drawn * ((0.1 if tied else 1.0) if embeds else 1.4 * drawn.shape[-1] ** -0.5)
            )
