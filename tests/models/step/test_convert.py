from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from tokenizers import Tokenizer
from transformers import AutoModelForCausalLM, AutoTokenizer

from models.folder import missing
from models.step.convert import convert
from tests.models.tiny_gguf import TEMPLATE, TOKENS, write_gguf


@pytest.fixture(scope="module")
def converted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    scratch = tmp_path_factory.mktemp("gguf")
    write_gguf(scratch / "tiny.gguf")
    convert(scratch / "tiny.gguf", scratch / "model")
    return scratch / "model"


def test_the_folder_is_complete_and_loads_as_any_other(converted: Path) -> None:
    assert missing(converted) == []
    model = AutoModelForCausalLM.from_pretrained(converted)
    assert model.dtype == torch.bfloat16
    assert model.config.vocab_size == len(TOKENS)


def test_the_chat_template_comes_along(converted: Path) -> None:
    assert (converted / "chat_template.jinja").read_text() == TEMPLATE
    assert AutoTokenizer.from_pretrained(converted).eos_token == "<|im_end|>"


def test_every_end_token_ends_the_models_own_first(converted: Path) -> None:
    ends = json.loads((converted / "generation_config.json").read_text())["eos_token_id"]
    assert [TOKENS[id] for id in ends] == ["<|im_end|>", "<|endoftext|>"]


def test_each_digit_is_a_token_of_its_own(converted: Path) -> None:
    tokenizer = Tokenizer.from_file(str(converted / "tokenizer.json"))
    assert tokenizer.encode("x 12 aa").tokens == ["x", "Ġ", "1", "2", "Ġa", "a"]


def test_weights_that_are_missing_are_not_made_up(tmp_path: Path) -> None:
    write_gguf(tmp_path / "tiny.gguf", without="blk.0.ffn_up.weight")
    with pytest.raises(ValueError, match=r"tiny\.gguf lacks 1 weights, such as .*up_proj\.weight"):
        convert(tmp_path / "tiny.gguf", tmp_path / "model")
