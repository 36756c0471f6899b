"""Stops that one token id matches."""

import pytest
from tokenizers import AddedToken

from models.text.byte_tokenizer import byte_tokenizer
from models.text.stop_ids import StopIds
from tests.models.text import vocabularies
from tests.models.text.vocabularies import id_of

BYTES = byte_tokenizer()


def test_a_control_token_stops_by_its_id() -> None:
    end = id_of(BYTES, "<|end|>")
    assert StopIds(BYTES).find(["<|end|>"]) == {end: "<|end|>"}
    assert StopIds(BYTES).find(["<|end|>", "x<|end|>"]) == {end: "<|end|>"}


def test_text_of_one_token_stops_by_its_id() -> None:
    assert StopIds(BYTES).find(["\n", "ab", "é"]) == {0x0A: "\n"}


def test_an_added_token_stops_by_its_id() -> None:
    tokenizer = vocabularies.bytes_with_added_tokens()
    tool = id_of(tokenizer, "<tool>")
    assert StopIds(tokenizer).find(["<tool>", "<tool"]) == {tool: "<tool>"}


@pytest.mark.parametrize("other", ["a\n", "a\nb"])
def test_text_that_a_match_further_left_may_reach_is_left_to_the_text(other: str) -> None:
    assert StopIds(BYTES).find(["\n", other]) == {}


def test_text_that_overlaps_itself_is_left_to_the_text() -> None:
    tokenizer = byte_tokenizer()
    tokenizer.add_tokens([AddedToken("\n\n", normalized=False), AddedToken("ab", normalized=False)])
    assert StopIds(tokenizer).find(["\n\n", "ab"]) == {id_of(tokenizer, "ab"): "ab"}


def test_stops_that_only_begin_together_stop_by_id() -> None:
    assert StopIds(BYTES).find(["\n", "\na"]) == {0x0A: "\n"}


def test_a_word_with_a_dummy_space_is_not_the_word() -> None:
    tokenizer = vocabularies.byte_fallback()
    end = id_of(tokenizer, "</s>")
    assert StopIds(tokenizer).find(["foo", " foo", "</s>", " </s>"]) == {end: "</s>"}


def test_duplicates_count_once() -> None:
    assert StopIds(BYTES).find(["x", "x"]) == {0x78: "x"}
