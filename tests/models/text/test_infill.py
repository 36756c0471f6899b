"""Text with a hole to fill, for vocabularies that have tokens for it."""

from __future__ import annotations

import pytest
from tokenizers import AddedToken, processors

from models.errors import Invalid
from models.request import GenerateRequest, SamplingParams, TextPrompt
from models.text.byte_tokenizer import BOS, END, byte_tokenizer
from models.text.encoded import Encoded
from models.text.infill import FORMS, Infill, find_infill
from models.text.pipeline import TextPipeline
from tests.models.text.vocabularies import id_of

HOLE = TextPrompt("def f(", "): pass")


def pipeline(*tokens: str) -> TextPipeline:
    """Over bytes and these special tokens; a prompt begins with the beginning of a sequence."""
    tokenizer = byte_tokenizer()
    tokenizer.add_special_tokens([AddedToken(token, special=True) for token in tokens])
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{BOS} $A", special_tokens=[(BOS, id_of(tokenizer, BOS))]
    )
    return TextPipeline(tokenizer, special_tokens={"bos_token": BOS, "eos_token": END})


def encode(text: TextPipeline, prompt: TextPrompt, *, ignore_eos: bool = False) -> Encoded:
    sampling = SamplingParams(ignore_eos=ignore_eos)
    return text.encode(GenerateRequest(id="r", prompt=prompt, sampling=sampling))


@pytest.mark.parametrize("form", FORMS, ids=lambda form: form.prefix)
def test_the_parts_stand_behind_their_tokens(form: Infill) -> None:
    text = pipeline(*form.tokens, *form.ends)
    encoded = encode(text, HOLE)
    before, after = form.prefix + HOLE.text, form.suffix + HOLE.suffix
    expected = after + before if form.suffix_first else before + after
    assert text.detokenize(encoded.token_ids) == BOS + expected + form.middle
    assert len(encoded.token_ids) == 1 + len(form.tokens) + len(HOLE.text + HOLE.suffix)
    ends = {text.detokenize([token_id]) for token_id in encoded.stop_ids}
    assert ends == {END, *form.ends}


def test_its_ends_are_for_such_prompts_only() -> None:
    form = FORMS[0]
    text = pipeline(*form.tokens, "<|file_sep|>")  # not all of the ends
    assert len(encode(text, HOLE).stop_ids) == 2
    assert len(encode(text, TextPrompt("x")).stop_ids) == 1
    assert encode(text, HOLE, ignore_eos=True).stop_ids == {}


def test_an_empty_suffix_is_none() -> None:
    assert encode(pipeline(), TextPrompt("x", "")).token_ids == (256, ord("x"))


def test_a_vocabulary_without_the_tokens_is_told_of() -> None:
    with pytest.raises(Invalid) as refused:
        encode(pipeline("<|fim_prefix|>", "<|fim_suffix|>"), HOLE)
    assert refused.value.param == "suffix"
    assert find_infill(["<|im_start|>"]) is None
