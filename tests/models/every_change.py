"""What of a config's defaults does not fit a tiny model when only its numbers are made smaller.

``whole``: nothing of the defaults is kept. ``...``: left out, for the config to derive.
"""

from __future__ import annotations

from typing import Any

Changes = dict[str, Any]
SLIDING = ["sliding_attention", "full_attention"] * 2
LINEAR = ["linear_attention", "full_attention"] * 2
INDEXED = ["indexed_attention", "sliding_attention"] * 2
HYBRID = ["linear_attention", "hybrid"] * 3
ROPE = {"rope_type": "default", "rope_theta": 10000.0}
LLAMA: Changes = {
    "vocab_size": 320,
    "hidden_size": 64,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "intermediate_size": 96,
    "max_position_embeddings": 256,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
WHOLE: Changes = {**LLAMA, "whole": True}
EXPERTS = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 96}
ROUTED = {"n_routed_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 96}
MAMBA = {"mamba_n_heads": 8, "mamba_d_head": 16, "mamba_d_state": 8, "mamba_chunk_size": 16}
LATENT: Changes = {"head_dim": ..., "num_key_value_heads": 4}
DECODER = {"is_decoder": True}
GEMMA4_UNIFIED: Changes = {
    **LLAMA,
    "head_dim": 16,
    "global_head_dim": 32,
    "sliding_window": 40,
    "layer_types": SLIDING + SLIDING[:2],
    "num_hidden_layers": 6,
    "num_kv_shared_layers": 2,
}
GEMMA4 = {**GEMMA4_UNIFIED, "hidden_size_per_layer_input": 8, "vocab_size_per_layer_input": 320}
DOTS3: Changes = {
    **LLAMA,
    **ROUTED,
    "num_key_value_heads": 4,
    "kv_lora_rank": 16,
    "q_lora_rank": 16,
    "qk_rope_head_dim": 8,
    "qk_nope_head_dim": 16,
    "v_head_dim": 16,
    "head_dim": 24,
    "index_topk": 40,
    "index_head_dim": 16,
    "index_n_heads": 2,
    "layer_types": INDEXED,
    "mlp_layer_types": ["dense", "sparse", "sparse", "sparse"],
    "sliding_window": 40,
    "shared_experts_intermediate_size": 96,
    "per_layer_config": {},
}
QWEN4: Changes = {
    "layer_types": ["linear_attention", "indexed_attention"] * 2,
    "indexer_n_heads": 2,
    "indexer_kv_heads": 1,
    "indexer_head_dim": 16,
    "indexer_budget": 40,
    "indexer_compress_ratio": 4,
    "ple_embed_dim": 64,
    "ngram_vocab_size_base": 1000,
    "heads_per_ngram": 2,
    "split_ngram_parts": 2,
    "hc_count": 2,
    "hc_lowrank": 16,
    "make_ngram_vocab_size_divisible_by": 8,
}
VISION = {
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "num_key_value_heads": 2,
    "head_dim": 16,
}
CHANGES: dict[str, Changes] = {
    **dict.fromkeys(("axk1", "axk2", "deepseek_v3", "deepseek_v32", "glm_moe_dsa"), LATENT),
    **dict.fromkeys(("glm4_moe_lite", "sarvam_mla", "youtu"), LATENT),
    **dict.fromkeys(("bert", "bert-generation", "big_bird", "camembert", "electra"), DECODER),
    **dict.fromkeys(("data2vec-text", "ernie", "megatron-bert", "rembert", "roberta"), DECODER),
    **dict.fromkeys(("roberta-prelayernorm", "roc_bert", "roformer", "xlm-roberta"), DECODER),
    "xlm-roberta-xl": DECODER,
    "xmod": {**DECODER, "default_language": "en_XX"},
    "bamba": {**WHOLE, **MAMBA, "attn_layer_indices": [1, 3], "head_dim": 16},
    "cohere_compass_text": {
        **WHOLE,
        "head_dim": 16,
        "layer_types": SLIDING,
        "sliding_window": 40,
        "rope_parameters": {"full_attention": ROPE, "sliding_attention": ROPE},
    },
    "dbrx": {
        "whole": True,
        "d_model": 64,
        "n_heads": 4,
        "n_layers": 3,
        "max_seq_len": 256,
        "vocab_size": 320,
        "attn_config": {"kv_n_heads": 2, "rope_theta": 10000.0, "clip_qkv": 8.0},
        "ffn_config": {
            "hidden_size": 64,
            "ffn_hidden_size": 96,
            "moe_num_experts": 4,
            "moe_top_k": 2,
            "ffn_act_fn": {"name": "silu"},
        },
    },
    "deepseek_v2": {**LATENT, "num_experts_per_tok": 2, "first_k_dense_replace": 1},
    "dory": {
        **WHOLE,
        "head_dim": 16,
        "sliding_window": 40,
        "layer_types": SLIDING,
        "n_input_layers": 1,
        "n_recurrent_layers": 2,
        "n_output_layers": 1,
    },
    "dots1": {
        **WHOLE,
        **ROUTED,
        "n_shared_experts": 1,
        "first_k_dense_replace": 1,
        "head_dim": 16,
        "sliding_window": 40,
        "layer_types": SLIDING,
    },
    "dots3_note_text": {"whole": True, **DOTS3},
    "falcon": {"new_decoder_architecture": True, "num_kv_heads": 2},
    "falcon_h1": {
        **WHOLE,
        **MAMBA,
        "mamba_d_ssm": 128,
        "head_dim": 16,
    },
    "gemma4": {"whole": True, "text_config": GEMMA4, "vision_config": VISION},
    "gemma4_text": {"whole": True, **GEMMA4},
    "gemma4_unified": {"whole": True, "text_config": GEMMA4_UNIFIED},
    "gemma4_unified_text": {"whole": True, **GEMMA4_UNIFIED},
    "granitemoehybrid": {
        **WHOLE,
        **MAMBA,
        "layer_types": LINEAR,
        "num_local_experts": 4,
        "shared_intermediate_size": 96,
        "attention_multiplier": 0.2,
    },
    "hunyuan_v1_dense": {"head_dim": 16},
    "hunyuan_v1_moe": {"head_dim": 16, "num_experts": 4, "moe_topk": 2},
    "jamba": {
        **WHOLE,
        "attn_layer_period": 2,
        "attn_layer_offset": 1,
        "expert_layer_period": 2,
        "expert_layer_offset": 1,
        "num_experts": 4,
        "mamba_d_state": 8,
        "mamba_dt_rank": 4,
    },
    "lfm2": {**WHOLE, "layer_types": ["conv", "full_attention"] * 2},
    "lfm2_moe": {
        **WHOLE,
        **EXPERTS,
        "num_dense_layers": 1,
        "layer_types": ["conv", "full_attention"] * 2,
    },
    "longcat_flash": {"head_dim": 8, "n_routed_experts": 4, "zero_expert_num": 2, "moe_topk": 2},
    "mamba2": {
        "whole": True,
        "vocab_size": 320,
        "hidden_size": 64,
        "num_hidden_layers": 3,
        "num_heads": 8,
        "head_dim": 16,
        "state_size": 8,
        "n_groups": 2,
        "chunk_size": 16,
    },
    "ministral": {"head_dim": 16, "layer_types": SLIDING},
    "mllama": {
        "whole": True,
        "image_token_index": 310,
        "text_config": {**LLAMA, "cross_attention_layers": [1], "rope_parameters": ROPE},
        "vision_config": {
            "hidden_size": 32,
            "intermediate_size": 32,
            "num_hidden_layers": 1,
            "num_global_layers": 1,
            "attention_heads": 2,
            "vision_output_dim": 64,
            "image_size": 28,
            "patch_size": 14,
            "intermediate_layers_indices": [0],
        },
    },
    "nemotron": {"num_key_value_heads": 2},
    "qwen4_exp": {"text_config": QWEN4},
    "qwen4_exp_text": QWEN4,
    "reformer": {
        **DECODER,
        "hidden_size": 64,
        "attention_head_size": 16,
        "axial_pos_shape": [16, 16],
        "axial_pos_embds_dim": [16, 48],
        "attn_layers": ["local", "lsh"] * 2,
        "num_buckets": 4,
        "hash_seed": 0,
    },
    "stablelm": {"num_key_value_heads": 2},
    "xlstm": {
        "whole": True,
        "vocab_size": 320,
        "hidden_size": 64,
        "num_heads": 4,
        "num_hidden_layers": 2,
        "chunk_size": 16,
    },
    "zamba": {
        **WHOLE,
        "num_key_value_heads": 4,
        "num_hidden_layers": 6,
        "layers_block_type": HYBRID,
        "mamba_d_state": 8,
        "mamba_dt_rank": 4,
        "n_mamba_heads": 2,
    },
    "zamba2": {
        **WHOLE,
        "num_key_value_heads": 4,
        "num_hidden_layers": 6,
        "layers_block_type": HYBRID,
        "mamba_d_state": 8,
        "n_mamba_heads": 8,
        "chunk_size": 16,
        "adapter_rank": 8,
        "use_mem_rope": True,
    },
    "zaya": {
        **WHOLE,
        **EXPERTS,
        "num_experts_per_tok": 1,
        "head_dim": 16,
        "layer_types": ["hybrid", "hybrid_sliding"] * 2,
        "sliding_window": 40,
        "router_hidden_size": 16,
    },
}
