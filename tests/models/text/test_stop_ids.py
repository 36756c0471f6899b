"""Stops that one token id matches."""

import pytest
from tokenizers import AddedToken, Tokenizer

from models.text.byte_tokenizer import byte_tokenizer
from models.text.incremental import Detokenizer
from models.text.stop_ids import StopIds
from tests.models.text import vocabularies
from tests.models.text.vocabularies import id_of

BYTES = byte_tokenizer()


def find(stops: list[str], tokenizer: Tokenizer = BYTES) -> dict[int, str]:
    return StopIds(tokenizer, Detokenizer(tokenizer)).find(stops)


def test_a_control_token_stops_by_its_id() -> None:
    end = id_of(BYTES, "<|end|>")
    assert find(["<|end|>"]) == {end: "<|end|>"}
    assert find(["<|end|>", "x<|end|>"]) == {end: "<|end|>"}


def test_text_of_one_token_stops_by_its_id() -> None:
    assert find(["\n", "ab", "é"]) == {0x0A: "\n"}


def test_an_added_token_stops_by_its_id() -> None:
    tokenizer = vocabularies.bytes_with_added_tokens()
    tool = id_of(tokenizer, "<tool>")
    assert find(["<tool>", "<tool"], tokenizer) == {tool: "<tool>"}


@pytest.mark.parametrize("other", ["a\n", "a\nb"])
def test_text_that_a_match_further_left_may_reach_is_left_to_the_text(other: str) -> None:
    assert find(["\n", other]) == {}


def test_text_that_overlaps_itself_is_left_to_the_text() -> None:
    tokenizer = byte_tokenizer()
    tokenizer.add_tokens([AddedToken("\n\n", normalized=False), AddedToken("ab", normalized=False)])
    assert find(["\n\n", "ab"], tokenizer) == {id_of(tokenizer, "ab"): "ab"}


def test_stops_that_only_begin_together_stop_by_id() -> None:
    assert find(["\n", "\na"]) == {0x0A: "\n"}


def test_a_word_with_a_dummy_space_is_not_the_word() -> None:
    tokenizer = vocabularies.byte_fallback()
    end = id_of(tokenizer, "</s>")
    assert find(["foo", " foo", "</s>", " </s>"], tokenizer) == {end: "</s>"}


def test_duplicates_count_once() -> None:
    assert find(["x", "x"]) == {0x78: "x"}
