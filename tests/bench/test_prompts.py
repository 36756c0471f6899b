from __future__ import annotations

import pytest
from tokenizers import Tokenizer, models, pre_tokenizers, processors

from models.text.byte_tokenizer import byte_tokenizer
from tests.bench.prompts import WORDS, Prompts


def tokenizer() -> Tokenizer:
    """Words are tokens, but those that begin with ``b``; a text begins with a special token."""
    known = ["[unknown]", "[begin]", *(word for word in WORDS if not word.startswith("b"))]
    made = Tokenizer(models.WordPiece({w: i for i, w in enumerate(known)}, unk_token="[unknown]"))
    made.pre_tokenizer = pre_tokenizers.Whitespace()
    made.post_processor = processors.TemplateProcessing(
        single="[begin] $0", special_tokens=[("[begin]", 1)]
    )
    return made


def test_a_text_has_so_many_tokens_of_the_tokenizer() -> None:
    prompts = Prompts.of(tokenizer())
    assert len(tokenizer().encode(prompts.text(128, "any")).ids) == 128
    assert len(tokenizer().encode(prompts.text(2, "any")).ids) == 2


def test_a_text_begins_with_its_prefix() -> None:
    prompts = Prompts.of(tokenizer())
    prefix = prompts.text(40, "prefix")
    text = prompts.text(50, "other", prefix=prefix)
    assert text.startswith(f"{prefix} ")
    assert len(tokenizer().encode(text).ids) == 50


def test_the_seed_alone_tells_the_text() -> None:
    prompts = Prompts.of_words()
    assert prompts.text(20, "a", 1) == prompts.text(20, "a", 1)
    assert prompts.text(20, "a", 1) != prompts.text(20, "a", 2)


def test_a_tokenizer_without_words_is_an_error() -> None:
    with pytest.raises(ValueError, match="no plain words"):
        Prompts.of(byte_tokenizer()).text(8, "any")
