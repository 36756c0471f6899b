"""Incremental detokenization against the tokenizer's own decoding of all ids."""

from collections.abc import Callable, Sequence
from itertools import chain, groupby
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tokenizers import Tokenizer

from models.text.byte_tokenizer import byte_tokenizer
from models.text.incremental import Detokenizer
from tests.models.text import vocabularies

TEXTS = [
    "é",
    "ありがとう",
    "👩‍👩‍👧‍👦 🇯🇵 👍🏽",
    "naïve café, Ω≈ç√ \n\n 日本 日本。",
    "\N{REPLACEMENT CHARACTER} kept \N{REPLACEMENT CHARACTER}",
    " two  spaces ",
]
KINDS = {
    "bytes": byte_tokenizer,
    "added": vocabularies.bytes_with_added_tokens,
    "fallback": vocabularies.byte_fallback,
    "metaspace": vocabularies.metaspace,
    "word pieces": vocabularies.word_pieces,
    "plain": vocabularies.plain_words,
}
Made = tuple[Tokenizer, Detokenizer]


@pytest.fixture(scope="module", params=list(KINDS.values()), ids=list(KINDS))
def made(request: pytest.FixtureRequest) -> Made:
    build: Callable[[], Tokenizer] = request.param
    tokenizer = build()
    return tokenizer, Detokenizer(tokenizer)


@pytest.fixture(scope="module")
def fallback() -> Made:
    tokenizer = vocabularies.byte_fallback()
    return tokenizer, Detokenizer(tokenizer)


@pytest.fixture(scope="module")
def by_bytes() -> Made:
    tokenizer = byte_tokenizer()
    return tokenizer, Detokenizer(tokenizer)


def whole(tokenizer: Tokenizer, token_ids: Sequence[int]) -> str:
    """What the tokenizer makes of all ids, if each wrong byte stood for a replacement character."""
    if tokenizer.token_to_id("<0x00>") is None:
        return tokenizer.decode(token_ids)
    replacement = vocabularies.id_of(tokenizer, "\N{REPLACEMENT CHARACTER}")
    unseen = tokenizer.get_added_tokens_decoder()
    shown = [i for i in token_ids if i not in unseen and tokenizer.id_to_token(i) is not None]
    repaired: list[int] = []
    for is_byte, run in groupby(shown, lambda i: 0 <= i - vocabularies.BYTE < 256):
        ids = list(run)
        if is_byte:
            text = bytes(i - vocabularies.BYTE for i in ids).decode(errors="replace")
            spelled = (
                [replacement] if c == "\ufffd" else [vocabularies.BYTE + b for b in c.encode()]
                for c in text
            )
            ids = list(chain(*spelled))
        repaired += ids
    return tokenizer.decode(repaired)


def deltas(made: Made, token_ids: Sequence[int], prompt: Sequence[int] = ()) -> list[str]:
    text = made[1].start(prompt)
    return [text.push(token_id) for token_id in token_ids] + [text.flush(), text.flush()]


@given(data=st.data())
def test_the_deltas_joined_are_the_decoding_of_all_ids(made: Made, data: st.DataObject) -> None:
    tokenizer = made[0]
    size = tokenizer.get_vocab_size()
    token_ids = data.draw(st.lists(st.integers(0, size + 1), max_size=40))
    assert "".join(deltas(made, token_ids)) == whole(tokenizer, token_ids)


def test_a_byte_may_be_the_space_that_a_decoder_strips(fallback: Made) -> None:
    space, letter = vocabularies.BYTE + 0x20, vocabularies.BYTE + 0x61
    for ids in ([space], [space, space], [space, letter], [letter, space]):
        assert "".join(deltas(fallback, ids)) == fallback[0].decode(ids)


def test_unknown_ids_between_bytes_are_nothing(fallback: Made) -> None:
    ids = [vocabularies.BYTE + 0xC3, fallback[0].get_vocab_size() + 1, vocabularies.BYTE + 0xA9]
    assert "".join(deltas(fallback, ids)) == whole(fallback[0], ids) == "é"


@given(data=st.data())
def test_bytes_of_characters_and_stray_bytes_mixed(fallback: Made, data: st.DataObject) -> None:
    characters = st.sampled_from("é日😀").map(lambda c: [vocabularies.BYTE + b for b in c.encode()])
    strays = st.integers(0, 267).map(lambda token_id: [token_id])
    token_ids = list(chain(*data.draw(st.lists(characters | strays, max_size=12))))
    assert "".join(deltas(fallback, token_ids)) == whole(fallback[0], token_ids)


@given(st.text(max_size=20), st.text(max_size=20))
def test_what_continues_a_prompt_is_the_rest_of_the_text(prompt: str, answer: str) -> None:
    tokenizer = byte_tokenizer()
    made = tokenizer, Detokenizer(tokenizer)
    out = deltas(made, list(answer.encode()), list(prompt.encode()))  # ids are bytes
    assert "".join(out) == answer


@given(st.binary(max_size=12), st.binary(max_size=12))
@example(b"\xed\xa0", b"\x80")  # half of a surrogate is held back, and is two wrong characters
def test_a_prompt_of_any_bytes_is_not_repeated(prompt: bytes, answer: bytes) -> None:
    tokenizer = byte_tokenizer()
    out = "".join(deltas((tokenizer, Detokenizer(tokenizer)), list(answer), list(prompt)))
    text = (prompt + answer).decode(errors="replace")
    assert text.endswith(out)
    assert len(out) <= len(answer.decode(errors="replace")) + 2


@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize("kind", ["bytes", "fallback"])
def test_a_character_is_never_split(kind: str, text: str) -> None:
    tokenizer = KINDS[kind]()
    token_ids = tokenizer.encode(text).ids
    out = deltas((tokenizer, Detokenizer(tokenizer)), token_ids)
    assert "".join(out) == text
    assert all(delta.count("\ufffd") <= text.count("\ufffd") for delta in out)


def test_a_character_comes_out_with_its_last_byte(by_bytes: Made) -> None:
    assert deltas(by_bytes, list("é👍".encode())) == ["", "é", "", "", "", "👍", "", ""]


def test_an_invalid_byte_comes_out_at_once(by_bytes: Made) -> None:
    assert deltas(by_bytes, [0xFF, 0xE3, 0x61]) == ["\ufffd", "", "\ufffda", "", ""]


def test_a_true_replacement_character_comes_out_at_once(by_bytes: Made) -> None:
    assert deltas(by_bytes, list("\ufffd".encode())) == ["", "", "\ufffd", "", ""]


def test_half_a_character_at_the_end_is_flushed_once(by_bytes: Made) -> None:
    assert deltas(by_bytes, [0x61, 0xE3, 0x81]) == ["a", "", "", "\ufffd", ""]


def test_each_character_of_byte_tokens_comes_out_with_its_last(fallback: Made) -> None:
    あ = [vocabularies.BYTE + byte for byte in "あ".encode()]
    word = vocabularies.id_of(fallback[0], "foo")
    assert deltas(fallback, [*あ, *あ, word]) == ["", "", "あ", "", "", "あ", "foo", "", ""]
    assert deltas(fallback, [*あ, vocabularies.BYTE + 0xFF, word])[2:5] == ["あ", "\ufffd", "foo"]
    assert deltas(fallback, あ[:2]) == ["", "", "\ufffd", ""]
    assert deltas(fallback, [*あ[:2], word]) == ["", "", "\ufffdfoo", "", ""]


def test_special_tokens_render_to_nothing(by_bytes: Made) -> None:
    end = vocabularies.id_of(by_bytes[0], "<|end|>")
    assert deltas(by_bytes, [0x61, end, 0xC3, end, 0xA9]) == ["a", "", "", "", "é", "", ""]


def test_an_answer_of_its_own_starts_without_the_dummy_space(fallback: Made) -> None:
    word = vocabularies.id_of(fallback[0], "▁foo")
    assert deltas(fallback, [word, word])[:2] == ["foo", " foo"]


def test_what_continues_a_prompt_keeps_its_space(fallback: Made) -> None:
    prompt = fallback[0].encode("a foo</s>").ids
    word = vocabularies.id_of(fallback[0], "▁foo")
    assert deltas(fallback, [word, word], prompt)[:2] == [" foo", " foo"]


@pytest.mark.parametrize("given_bytes", [1, 2, 3])
def test_a_character_begun_by_the_prompt_comes_out_whole(
    by_bytes: Made, fallback: Made, given_bytes: int
) -> None:
    spelled = list("👍".encode())
    prompt, rest = [*b"prompt", *spelled[:given_bytes]], [*spelled[given_bytes:], 0x61]
    assert "".join(deltas(by_bytes, rest, prompt)) == "👍a"
    prompt, rest = spelled[:given_bytes], spelled[given_bytes:]
    words = fallback[0].encode("a foo日").ids
    tokens = [[vocabularies.BYTE + byte for byte in part] for part in (prompt, rest)]
    assert "".join(deltas(fallback, tokens[1], [*words, *tokens[0]])) == "👍"


def test_a_prompt_that_ends_in_whole_byte_tokens_is_not_repeated(fallback: Made) -> None:
    tokenizer = fallback[0]
    prompt = tokenizer.encode("a 日😀").ids
    assert "".join(deltas(fallback, [vocabularies.id_of(tokenizer, "▁foo")], prompt)) == " foo"
    more = [vocabularies.BYTE + byte for byte in "😀".encode()]
    assert "".join(deltas(fallback, more, prompt)) == "😀"


@given(st.lists(st.integers(0, 255), max_size=40))
def test_bytes_inside_a_longer_decoder_lose_nothing(token_ids: list[int]) -> None:
    tokenizer = vocabularies.nested_byte_level()
    text = "".join(deltas((tokenizer, Detokenizer(tokenizer)), list("xé日😀".encode())))
    assert text == "xé日😀"
    deltas((tokenizer, Detokenizer(tokenizer)), token_ids)


@pytest.fixture(scope="module")
def default_model(smollm2: Path) -> Made:
    tokenizer = Tokenizer.from_file(str(smollm2 / "tokenizer.json"))
    return tokenizer, Detokenizer(tokenizer)


@pytest.mark.slow
@given(data=st.data())
def test_random_ids_of_the_default_model(default_model: Made, data: st.DataObject) -> None:
    tokenizer = default_model[0]
    token_ids = data.draw(st.lists(st.integers(0, tokenizer.get_vocab_size()), max_size=60))
    assert "".join(deltas(default_model, token_ids)) == tokenizer.decode(token_ids)


def test_special_tokens_show_where_asked_for() -> None:
    tokenizer = byte_tokenizer()
    user, end = (vocabularies.id_of(tokenizer, token) for token in ("<|user|>", "<|end|>"))
    ids = [*b"a", user, *b"b", end]
    text = Detokenizer(tokenizer, shown={"<|user|>"}).start()
    assert [text.push(token_id) for token_id in ids] == ["a", "<|user|>", "b", ""]


@pytest.mark.parametrize(
    ("kind", "piece", "spelled"),
    [
        ("fallback", "▁a", b" a"),
        ("fallback", "é", "é".encode()),
        ("fallback", "<0xC3>", b"\xc3"),
        ("fallback", "</s>", b"</s>"),
        ("metaspace", "▁foo", b" foo"),
        ("word pieces", "##able", b"able"),
        ("plain", "two", b" two"),
        ("added", "日本", "日本".encode()),
    ],
)
def test_the_bytes_of_a_token_within_a_text(kind: str, piece: str, spelled: bytes) -> None:
    tokenizer = KINDS[kind]()
    token_id = vocabularies.id_of(tokenizer, piece)
    assert Detokenizer(tokenizer).bytes_of(token_id) == spelled


@pytest.mark.parametrize("kind", ["bytes", "fallback"])
@pytest.mark.parametrize("text", TEXTS)
def test_the_bytes_of_all_tokens_are_those_of_the_text(kind: str, text: str) -> None:
    tokenizer = KINDS[kind]()
    detokenizer = Detokenizer(tokenizer)
    ids = tokenizer.encode(text).ids
    spelled = b"".join(detokenizer.bytes_of(token_id) for token_id in ids)
    assert spelled.removeprefix(b" " if kind == "fallback" else b"") == text.encode()


def test_special_tokens_can_be_shown() -> None:
    text = Detokenizer(byte_tokenizer(), skip_special=False).start()
    assert text.push(257) == "<|end|>"


def test_a_token_within_a_text_keeps_its_space_and_is_shown_if_it_is_special(
    fallback: Made,
) -> None:
    tokenizer, detokenizer = fallback
    pieces = {"▁foo": " foo", "foo": "foo", "</s>": "</s>", "<0x0A>": "\n"}
    within = [detokenizer.within(vocabularies.id_of(tokenizer, piece)) for piece in pieces]
    assert within == list(pieces.values())
