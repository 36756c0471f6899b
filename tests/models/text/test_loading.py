"""What a pipeline reads in a folder, and the built-in one."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer, processors

from models.request import ChatPrompt, TextPrompt
from models.text.byte_tokenizer import byte_tokenizer
from models.text.loading import load_pipeline
from tests.models.text import vocabularies
from tests.models.text.encoding import BYTES, CHAT, encode, refused

BOS, END, SYSTEM, USER, ASSISTANT = range(256, 261)


def folder(path: Path, tokenizer: Tokenizer, **configs: Mapping[str, Any]) -> Path:
    tokenizer.save(str(path / "tokenizer.json"))
    for name, config in configs.items():
        (path / f"{name}.json").write_text(json.dumps(config), encoding="utf-8")
    return path


def test_bytes_are_their_own_ids() -> None:
    assert encode(TextPrompt("é\n")).token_ids == (0xC3, 0xA9, 0x0A)
    assert BYTES.vocab_size == 261
    assert BYTES.eos_token_ids == {END}


def test_a_chat_of_bytes() -> None:
    assert encode(CHAT).token_ids == (BOS, USER, *b"Hi", END, ASSISTANT)
    developer = ChatPrompt(({"role": "developer", "content": "x"},))
    assert encode(developer).token_ids == (BOS, SYSTEM, *b"x", END, ASSISTANT)


def test_a_chat_gets_one_bos_and_a_raw_text_the_tokenizers_own(tmp_path: Path) -> None:
    tokenizer = vocabularies.byte_fallback()
    bos = vocabularies.id_of(tokenizer, "<s>")
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A", special_tokens=[("<s>", bos)]
    )
    config = {
        "bos_token": {"content": "<s>", "special": True},
        "add_bos_token": True,
        "chat_template": "{{ bos_token }}{{ messages[0].content }}",
    }
    pipeline = load_pipeline(folder(tmp_path, tokenizer, tokenizer_config=config))
    for prompt in (TextPrompt("Hi"), CHAT):
        assert encode(prompt, pipeline=pipeline).token_ids.count(bos) == 1


def test_eos_is_read_from_every_file(tmp_path: Path) -> None:
    tokenizer = vocabularies.bytes_with_added_tokens()
    pipeline = load_pipeline(
        folder(
            tmp_path,
            tokenizer,
            config={"eos_token_id": 3, "vocab_size": 1000},
            generation_config={"eos_token_id": [4, 5]},
            tokenizer_config={"eos_token": "<|end|>"},
        )
    )
    assert pipeline.eos_token_ids == {3, 4, 5, END}
    assert pipeline.vocab_size == 1000


def test_ids_beyond_the_models_vocabulary_never_end_an_answer(tmp_path: Path) -> None:
    configs: dict[str, dict[str, Any]] = {
        "config": {"vocab_size": 256},
        "tokenizer_config": {"eos_token": "<|end|>"},
    }
    pipeline = load_pipeline(folder(tmp_path, byte_tokenizer(), **configs))
    assert pipeline.eos_token_ids == frozenset()
    encoded = encode(TextPrompt("a"), "<|end|>", "\n", pipeline=pipeline)
    assert encoded.stop_ids == {0x0A: "\n"}


def test_ids_of_text_beyond_the_models_vocabulary_are_refused(tmp_path: Path) -> None:
    config = {"text_config": {"vocab_size": 100}}
    pipeline = load_pipeline(folder(tmp_path, vocabularies.byte_fallback(), config=config))
    assert refused(TextPrompt("foo"), pipeline).param == "prompt"


def test_truncation_and_padding_of_the_tokenizer_are_off(tmp_path: Path) -> None:
    tokenizer = byte_tokenizer()
    tokenizer.enable_truncation(4)
    tokenizer.enable_padding(length=16)
    pipeline = load_pipeline(folder(tmp_path, tokenizer))
    assert encode(TextPrompt("abcdef"), pipeline=pipeline).token_ids == tuple(b"abcdef")


def test_a_template_file_replaces_the_models_own(tmp_path: Path) -> None:
    override = tmp_path / "mine.jinja"
    override.write_text("mine", encoding="utf-8")
    config = {"chat_template": "theirs"}
    path = folder(tmp_path, byte_tokenizer(), tokenizer_config=config)
    assert encode(CHAT, pipeline=load_pipeline(path)).token_ids == tuple(b"theirs")
    assert encode(CHAT, pipeline=load_pipeline(path, str(override))).token_ids == tuple(b"mine")
