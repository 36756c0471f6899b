from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from models.lora import CONFIG, WEIGHTS, AdapterError, Lora, read_lora

TOLD: dict[str, Any] = {
    "peft_type": "LORA",
    "r": 8,
    "lora_alpha": 16,
    "target_modules": ["q_proj", "v_proj"],
    "bias": "none",
    "lora_dropout": 0.1,
    "init_lora_weights": True,
    "modules_to_save": None,
    "layer_replication": None,
    "megatron_core": "megatron.core",
    "qalora_group_size": 16,
    "inference_mode": True,
}
Q, UP = "model.layers.1.self_attn.q_proj", "model.layers.0.mlp.up_proj"


def folder_of(path: Path, **changes: Any) -> Path:
    (path / CONFIG).write_text(json.dumps({**TOLD, **changes}))
    (path / WEIGHTS).write_bytes(b"")
    return path


def read(path: Path, **changes: Any) -> Lora:
    return read_lora("sql", folder_of(path, **changes))


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"peft_type": "IA3"}, "its `peft_type` is IA3"),
        ({"bias": "lora_only"}, "`bias: lora_only` is not supported"),
        ({"use_dora": True}, "`use_dora` is not supported"),
        ({"lora_bias": True}, "`lora_bias` is not supported"),
        ({"modules_to_save": ["lm_head"]}, "`modules_to_save` is not supported"),
        ({"trainable_token_indices": [1]}, "`trainable_token_indices` is not supported"),
        ({"target_parameters": ["experts.w"]}, "`target_parameters` is not supported"),
        ({"layer_replication": [[0, 2]]}, "`layer_replication` is not supported"),
        ({"use_qalora": True}, "`use_qalora` is not supported"),
        ({"of_next_year": 1}, "`of_next_year` is not supported"),
        ({"init_lora_weights": "pissa"}, "`init_lora_weights: pissa` changes the base's weights"),
        ({"r": 0}, "`r` and `rank_pattern` must be"),
        ({"rank_pattern": {"q_proj": 1.5}}, "`r` and `rank_pattern` must be"),
        ({"lora_alpha": "much"}, "`lora_alpha` and `alpha_pattern` must be"),
        ({"target_modules": None}, "it names no `target_modules`"),
        ({"target_modules": [1]}, "`target_modules` cannot be "),
        (
            {"target_modules": "q_(proj"},
            "`target_modules` cannot be 'q_(proj' (Value error, no reg",
        ),
        ({"exclude_modules": 5}, "`exclude_modules` cannot be 5"),
        ({"rank_pattern": [8]}, "`rank_pattern` cannot be [8]"),
        ({"alpha_pattern": {"*": 8}}, "`alpha_pattern` cannot be '*'"),
        ({"layers_to_transform": "all"}, "`layers_to_transform` cannot be 'all'"),
        ({"use_rslora": "no"}, "`use_rslora` cannot be 'no'"),
    ],
)
def test_what_is_not_supported_is_named(
    tmp_path: Path, changes: dict[str, Any], reason: str
) -> None:
    with pytest.raises(AdapterError) as error:
        read(tmp_path, **changes)
    assert str(error.value).startswith(f"adapter 'sql': {reason}")


@pytest.mark.parametrize(
    ("content", "reason"), [("{", "is no JSON: "), ("[]", "its adapter_config.json is no object")]
)
def test_a_file_that_is_no_object_is_named(tmp_path: Path, content: str, reason: str) -> None:
    (folder_of(tmp_path) / CONFIG).write_text(content)
    with pytest.raises(AdapterError, match=f"adapter 'sql': .*{reason}"):
        read_lora("sql", tmp_path)


def test_a_folder_that_lacks_a_file_is_named(tmp_path: Path) -> None:
    folder_of(tmp_path)
    (tmp_path / WEIGHTS).unlink()
    with pytest.raises(AdapterError, match=f"adapter 'sql': .* lacks {WEIGHTS}"):
        read_lora("sql", tmp_path)


def test_scales(tmp_path: Path) -> None:
    assert read(tmp_path).scale_of(Q) == 2
    assert read(tmp_path, use_rslora=True, r=16).scale_of(Q) == 4
    patterns = {"rank_pattern": {"q_proj": 4, r"layers\.0\.mlp\..*": 2}, "alpha_pattern": {Q: 20}}
    lora = read(tmp_path, **patterns)
    assert (lora.rank_of(Q), lora.rank_of(UP), lora.rank_of("model.q_proj_of_mine")) == (4, 2, 8)
    assert (lora.scale_of(Q), lora.scale_of(UP)) == (5, 8)


@pytest.mark.parametrize(
    ("changes", "targeted"),
    [
        ({}, {Q}),
        ({"target_modules": ["proj"]}, set()),
        ({"target_modules": [UP, "k_proj"]}, {UP}),
        ({"target_modules": "all-linear"}, {Q, UP}),
        ({"target_modules": r".*\.mlp\..*"}, {UP}),
        ({"target_modules": "q_proj"}, set()),
        ({"target_modules": "all-linear", "exclude_modules": ["q_proj"]}, {UP}),
        ({"target_modules": "all-linear", "exclude_modules": ".*mlp.*"}, {Q}),
        ({"target_modules": ["q_proj", "up_proj"], "layers_to_transform": [1]}, {Q}),
        ({"target_modules": ["q_proj", "up_proj"], "layers_to_transform": 0}, {UP}),
        (
            {
                "target_modules": ["q_proj"],
                "layers_to_transform": [1],
                "layers_pattern": "blocks",
            },
            set(),
        ),
    ],
)
def test_targets(tmp_path: Path, changes: dict[str, Any], targeted: set[str]) -> None:
    lora = read(tmp_path, **changes)
    assert {name for name in (Q, UP) if lora.targets(name)} == targeted
