from __future__ import annotations

import pickle

import pytest
from tokenizers import Tokenizer, models, pre_tokenizers, processors

from models.embedding import MAX_INPUTS, EmbedRequest, InputTooLong
from models.errors import Invalid
from models.request import TextPrompt, TokenPrompt
from models.text.inputs import encode_inputs
from models.text.loading import byte_pipeline
from models.text.pipeline import TextPipeline

WORDS = ["[PAD]", "[CLS]", "[SEP]", "[UNK]", "one", "two", "three"]
CLS, SEP, ONE, TWO, THREE = 1, 2, 4, 5, 6


def pipeline() -> TextPipeline:
    """As an encoder's: special tokens around the text, padding and truncation in its file."""
    vocabulary = {word: index for index, word in enumerate(WORDS)}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", CLS), ("[SEP]", SEP)]
    )
    tokenizer.enable_truncation(4)
    tokenizer.enable_padding(length=4)
    return TextPipeline(tokenizer, special_tokens={})


def encode(*inputs: str | tuple[int, ...], most: int = 5, truncate: int | None = None) -> list[int]:
    prompts = [TextPrompt(one) if isinstance(one, str) else TokenPrompt(one) for one in inputs]
    request = EmbedRequest(id="r", inputs=tuple(prompts), truncate=truncate)
    return [token for ids in encode_inputs(pipeline(), request, most).token_ids for token in ids]


def test_texts_get_their_special_tokens_and_ids_stay_as_they_are() -> None:
    assert encode("one two", (ONE, TWO)) == [CLS, ONE, TWO, SEP, ONE, TWO]


def test_an_input_that_is_too_long_is_named_with_both_numbers() -> None:
    with pytest.raises(InputTooLong) as raised:
        encode("one", "one two three one")
    copy = pickle.loads(pickle.dumps(raised.value))
    for error in (raised.value, copy):
        assert (error.prompt_tokens, error.max_context) == (6, 5)
        assert "5 tokens, but 'input[1]' has 6 tokens" in error.message


def test_truncation_cuts_the_text_and_keeps_what_is_around_it() -> None:
    assert encode("one two three", truncate=4) == [CLS, ONE, TWO, SEP]
    assert encode("one two three one", truncate=-1) == [CLS, ONE, TWO, THREE, SEP]
    assert encode((ONE, TWO, THREE), truncate=2) == [ONE, TWO]
    assert encode("one", truncate=4) == [CLS, ONE, SEP]


@pytest.mark.parametrize(
    ("truncate", "message"),
    [(6, "more than this model's 5"), (2, "must be more than 2"), (0, "at least 1"), (-2, "-1")],
)
def test_truncation_has_its_limits(truncate: int, message: str) -> None:
    with pytest.raises(Invalid, match=message) as raised:
        encode("one", truncate=truncate)
    assert raised.value.param == "truncate_prompt_tokens"


def test_a_token_that_nobody_knows() -> None:
    with pytest.raises(Invalid, match="Token id 7 in input") as raised:
        encode("one", (7,))
    assert raised.value.param == "input[1]"


def test_a_text_without_tokens() -> None:
    request = EmbedRequest(id="r", inputs=(TextPrompt(""),), single=True)
    with pytest.raises(Invalid, match="'input' has no tokens"):
        encode_inputs(byte_pipeline(), request, 5)


@pytest.mark.parametrize("count", [0, MAX_INPUTS + 1])
def test_a_request_has_one_input_or_more_but_not_too_many(count: int) -> None:
    with pytest.raises(Invalid, match=f"1 to {MAX_INPUTS} inputs"):
        EmbedRequest(id="r", inputs=(TextPrompt("x"),) * count)
