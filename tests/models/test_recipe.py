from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from models.recipe import Recipe, made_to_embed, read_recipe

TYPES = "sentence_transformers.models."


def write(folder: Path, name: str, content: Any) -> None:
    path = folder / name
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(content))


def modules(folder: Path, *kinds: str) -> None:
    rows = [
        {"idx": i, "path": f"{i}_{kind}" if i else "", "type": TYPES + kind}
        for i, kind in enumerate(kinds)
    ]
    write(folder, "modules.json", rows)


def test_the_files_of_a_sentence_model_are_followed(tmp_path: Path) -> None:
    modules(tmp_path, "Transformer", "Pooling", "Dense", "Normalize")
    flags = {"pooling_mode_cls_token": False, "pooling_mode_mean_tokens": True}
    write(tmp_path, "1_Pooling/config.json", {"word_embedding_dimension": 4, **flags})
    write(tmp_path, "sentence_bert_config.json", {"max_seq_length": 256})
    write(tmp_path, "tokenizer_config.json", {"model_max_length": 512})
    assert read_recipe(tmp_path) == Recipe("mean", True, (tmp_path / "2_Dense",), 256, 512)
    assert made_to_embed(tmp_path)


def test_without_a_normalize_vectors_keep_their_length(tmp_path: Path) -> None:
    modules(tmp_path, "Transformer", "Pooling")
    write(tmp_path, "1_Pooling/config.json", {"pooling_mode": "lasttoken"})
    write(tmp_path, "tokenizer_config.json", {"model_max_length": 10**30})
    assert read_recipe(tmp_path) == Recipe("last", False)


@pytest.mark.parametrize(
    ("architectures", "pooling", "embeds"),
    [
        (["LlamaForCausalLM"], "last", False),
        (["BertGenerationDecoder"], "last", False),
        (["ReformerModelWithLMHead"], "last", False),
        (["BertModel"], "mean", True),
        ([], "mean", False),
    ],
)
def test_other_folders_get_what_their_architecture_wants(
    tmp_path: Path, architectures: list[str], pooling: str, embeds: bool
) -> None:
    write(tmp_path, "config.json", {"architectures": architectures})
    assert read_recipe(tmp_path) == Recipe(pooling, True)
    assert made_to_embed(tmp_path) == embeds


@pytest.mark.parametrize(
    "kinds",
    [
        ("Transformer",),
        ("Pooling", "Transformer"),
        ("Transformer", "Pooling", "Normalize", "Dense"),
        ("Transformer", "Pooling", "LayerNorm"),
        ("WordEmbeddings", "Pooling"),
    ],
)
def test_other_modules_are_refused_by_name(tmp_path: Path, kinds: tuple[str, ...]) -> None:
    modules(tmp_path, *kinds)
    with pytest.raises(ValueError, match=", ".join(kinds)):
        read_recipe(tmp_path)


@pytest.mark.parametrize(
    ("config", "named"),
    [
        ({"pooling_mode_weightedmean_tokens": True}, "weightedmean_tokens"),
        ({"pooling_mode_cls_token": True, "pooling_mode_max_tokens": True}, "cls with max"),
        ({"pooling_mode": "mean_sqrt_len_tokens"}, "mean_sqrt_len"),
        ({}, "of no kind"),
    ],
)
def test_other_poolings_are_refused_by_name(
    tmp_path: Path, config: dict[str, Any], named: str
) -> None:
    modules(tmp_path, "Transformer", "Pooling")
    write(tmp_path, "1_Pooling/config.json", config)
    with pytest.raises(ValueError, match=named):
        read_recipe(tmp_path)


def test_a_prompt_that_would_be_left_out_is_refused(tmp_path: Path) -> None:
    modules(tmp_path, "Transformer", "Pooling")
    write(tmp_path, "1_Pooling/config.json", {"pooling_mode": "cls"})
    prompts = {"prompts": {"query": "query: "}, "default_prompt_name": "query"}
    write(tmp_path, "config_sentence_transformers.json", prompts)
    with pytest.raises(ValueError, match="default prompt 'query'"):
        read_recipe(tmp_path)
