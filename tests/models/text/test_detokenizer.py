"""Ids to the text that may be sent: ``TextDecoder``."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from models.text.byte_tokenizer import byte_tokenizer
from models.text.detokenizer import TextDecoder
from models.text.incremental import Detokenizer
from tests.models.text import vocabularies
from tests.models.text.searching import cut, first_match

BYTES = Detokenizer(byte_tokenizer())


def decoder(*stops: str, min_tokens: int = 0) -> TextDecoder:
    return TextDecoder(BYTES.start(), stops, min_tokens=min_tokens)


texts = st.text(st.sampled_from("abé\U0001f600"), max_size=30)
stop_lists = st.lists(st.text(st.sampled_from("abé\U0001f600"), max_size=4), max_size=4)


@given(texts, stop_lists, st.lists(st.integers(0, 120), max_size=10))
def test_the_emitted_text_and_tokens_end_at_the_first_match(
    text: str, stops: list[str], cuts: list[int]
) -> None:
    decode = decoder(*stops)
    pieces = [piece.encode("latin-1") for piece in cut(text.encode().decode("latin-1"), cuts)]
    emitted = "".join(decode.push(list(piece)) for piece in pieces) + decode.flush()
    match = first_match(text, stops)
    end = len(text) if match is None else match[0] + len(match[1])
    assert emitted == (text if match is None else text[: match[0]])
    assert decode.tokens == len(text[:end].encode())
    assert decode.stop == (None if match is None else match[1])


def test_several_tokens_at_once_count_up_to_the_one_that_completes_the_stop() -> None:
    decode = decoder("cd")
    assert decode.push(list(b"abcdef")) == "ab"
    assert (decode.stop, decode.tokens) == ("cd", 4)
    assert decode.push(list(b"gh")) == decode.flush() == ""
    assert decode.tokens == 4


def test_without_stops_each_token_is_sent_at_once() -> None:
    decode = decoder()
    assert [decode.push([token]) for token in b"ab\n"] == ["a", "b", "\n"]
    assert (decode.flush(), decode.tokens, decode.stop) == ("", 3, None)


def test_a_match_found_late_counts_no_later_tokens() -> None:
    decode = decoder("bc", "abcdefgh")
    assert decode.push(list(b"_abcdef")) == "_"
    assert (decode.stop, decode.tokens) == (None, 7)
    assert decode.push(list(b"x")) == "a"
    assert (decode.stop, decode.tokens) == ("bc", 4)


def test_a_match_that_waits_at_the_end_is_settled_by_flush() -> None:
    decode = decoder("bc", "abcdefgh")
    decode.push(list(b"_abcd"))
    assert decode.flush() == "a"
    assert (decode.stop, decode.tokens) == ("bc", 4)


def test_what_is_held_is_flushed_once_with_half_a_character() -> None:
    decode = decoder("stop")
    assert decode.push([*b"a st", 0xE3, 0x81]) == "a "
    assert [decode.flush(), decode.flush()] == ["st\ufffd", ""]


def test_a_stop_of_several_bytes_a_character() -> None:
    decode = decoder("とう")
    emitted = [decode.push([token]) for token in "ありがとう!".encode()]
    assert "".join(emitted) == "ありが"
    assert (decode.stop, decode.tokens) == ("とう", 15)


@pytest.mark.parametrize(("min_tokens", "text"), [(0, "a"), (1, "a"), (2, "a.b"), (3, "a.b")])
def test_a_stop_in_the_first_min_tokens_does_not_count(min_tokens: int, text: str) -> None:
    decode = decoder(".", min_tokens=min_tokens)
    assert decode.push(list(b"a.b.c")) == text


def test_a_stop_begun_in_the_first_min_tokens_counts_if_it_ends_later() -> None:
    decode = decoder("..", min_tokens=2)
    assert decode.push(list(b"a..b")) == "a"
    assert decode.stop == ".."


def test_a_control_token_is_not_matched_as_text() -> None:
    end = vocabularies.id_of(byte_tokenizer(), "<|end|>")
    decode = decoder("<|end|>")
    assert decode.push([*b"a", end, *b"b"]) == "ab"


def test_a_stop_made_of_byte_fallback_tokens() -> None:
    decode = TextDecoder(Detokenizer(vocabularies.byte_fallback()).start(), ["😀"])
    spelled = [vocabularies.BYTE + byte for byte in "é😀".encode()]
    assert decode.push([*spelled, 267]) == "é"
    assert decode.stop == "😀"
