"""Which tokens belong to the text that is out."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from models.text.alignment import Alignment
from models.text.byte_tokenizer import byte_tokenizer
from models.text.detokenizer import TextDecoder
from models.text.incremental import Detokenizer
from tests.models.text.searching import first_match

BYTES = Detokenizer(byte_tokenizer())


def decoder(*stops: str, keep_stop: bool = False) -> tuple[TextDecoder, Alignment]:
    alignment = Alignment()
    made = TextDecoder(BYTES.start(), stops, keep_stop=keep_stop, alignment=alignment)
    return made, alignment


def test_half_a_character_comes_with_the_other_half() -> None:
    decode, alignment = decoder()
    told = []
    for byte in "a€b".encode():
        decode.push([byte])
        told.append(alignment.told)
    assert told == [1, 1, 1, 4, 5]
    assert [alignment.offset(i) for i in range(5)] == [0, 1, 1, 1, 2]


def test_held_tokens_come_when_their_text_does() -> None:
    decode, alignment = decoder("cde")
    assert (decode.push(list(b"ab")), alignment.told) == ("ab", 2)
    assert (decode.push(list(b"cd")), alignment.told) == ("", 2)
    assert (decode.push(list(b"x")), alignment.told) == ("cdx", 5)
    assert (decode.push(list(b"c")), alignment.told) == ("", 5)
    assert (decode.flush(), alignment.told) == ("c", 6)


def test_a_stop_leaves_its_tokens_out_unless_it_is_kept() -> None:
    decode, alignment = decoder("cd")
    assert (decode.push(list(b"abcdef")), alignment.told) == ("ab", 2)
    decode, alignment = decoder("cd", keep_stop=True)
    assert (decode.push(list(b"abcdef")), alignment.told) == ("abcd", 4)


def test_a_stop_within_a_character_of_several_tokens_keeps_none_of_them() -> None:
    decode, alignment = decoder("€")
    assert (decode.push(list("a€b".encode())), alignment.told) == ("a", 1)


texts = st.text(st.sampled_from("abé\U0001f600"), max_size=20)
stop_lists = st.lists(st.text(st.sampled_from("abé\U0001f600"), max_size=4), max_size=3)


@given(texts, stop_lists, st.booleans())
def test_the_tokens_told_spell_the_text_that_is_out(
    text: str, stops: list[str], keep: bool
) -> None:
    decode, alignment = decoder(*stops, keep_stop=keep)
    out, spelled = "", text.encode()
    for byte in spelled:
        out += decode.push([byte])
        assert spelled[: alignment.told].decode() == out
        if decode.stop is not None:
            break
    out += decode.flush()
    match = first_match(text, stops)
    end = len(text) if match is None else match[0] + (len(match[1]) if keep else 0)
    assert out == text[:end]
    assert spelled[: alignment.told].decode() == out
    for i in range(alignment.told):
        assert alignment.offset(i) == len(spelled[:i].decode(errors="ignore"))
