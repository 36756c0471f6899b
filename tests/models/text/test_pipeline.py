"""Requests to ids and ends: ``TextPipeline``."""

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest
from tokenizers import processors

from models.errors import Invalid
from models.request import ChatPrompt, GenerateRequest, TextPrompt, TokenPrompt
from models.text.byte_tokenizer import byte_tokenizer
from models.text.pipeline import TextPipeline
from tests.models.text import vocabularies
from tests.models.text.encoding import BYTES, CHAT, encode, refused

BOS, END, SYSTEM, USER, ASSISTANT = range(256, 261)


def test_token_ids_pass_as_they_are() -> None:
    assert encode(TokenPrompt((5, 260, 5))).token_ids == (5, 260, 5)


def test_an_empty_text_begins_with_bos_or_is_refused() -> None:
    assert encode(TextPrompt("")).token_ids == (BOS,)
    bare = TextPipeline(vocabularies.plain_words(), special_tokens={})
    assert refused(TextPrompt(""), bare).param == "prompt"


def test_ids_that_the_model_does_not_know_are_refused() -> None:
    assert refused(TokenPrompt((1, 261))).param == "prompt"
    assert refused(CHAT, logit_bias={261: 1.0}).param == "logit_bias"
    assert refused(CHAT, stop_token_ids=(3, 261)).param == "stop_token_ids"
    assert "261" in refused(TokenPrompt((1, 261))).message


def test_a_model_without_a_template_takes_no_chat() -> None:
    refusal = refused(CHAT, TextPipeline(vocabularies.plain_words(), special_tokens={}))
    assert "no chat template" in refusal.message
    assert refusal.param == "messages"


def test_what_ends_an_answer() -> None:
    encoded = encode(CHAT, "\n", "", "ab", "\n", stop_token_ids=(7,))
    assert encoded.stop_ids == {END: None, 7: 7, 0x0A: "\n"}
    assert encoded.stops == ("\n", "ab")


def test_eos_is_ignored_on_request() -> None:
    assert encode(CHAT, ignore_eos=True).stop_ids == {}
    assert encode(CHAT, ignore_eos=True, stop_token_ids=(END,)).stop_ids == {END: END}


def test_eos_named_by_the_caller_keeps_the_callers_spelling() -> None:
    assert encode(CHAT, "<|end|>", ignore_eos=True).stop_ids == {END: "<|end|>"}
    assert encode(CHAT, "<|end|>").stop_ids == {END: "<|end|>"}
    assert encode(CHAT, stop_token_ids=(END,)).stop_ids == {END: END}


def test_text_that_spells_a_control_token_does_not_stop_by_id() -> None:
    encoded = encode(CHAT, "<|end|>")
    spelled = list(b"<|end|>")
    assert not encoded.stop_ids.keys() & set(spelled)
    decoder = BYTES.decoder(encoded)
    assert decoder.push([*b"a", *spelled]) == "a"
    assert decoder.stop == "<|end|>"


def test_min_tokens_reaches_the_decoder() -> None:
    decoder = BYTES.decoder(encode(CHAT, "."), min_tokens=2)
    assert decoder.push(list(b"a.b.c")) == "a.b"


def test_a_raw_prompt_is_continued_and_a_chat_answered_anew() -> None:
    tokenizer = vocabularies.byte_fallback()
    word = vocabularies.id_of(tokenizer, "▁foo")
    pipeline = TextPipeline(tokenizer, special_tokens={}, chat_template="{{ messages[0].content }}")
    raw = encode(TextPrompt("foo"), pipeline=pipeline)
    chat = encode(ChatPrompt(({"role": "user", "content": "foo"},)), pipeline=pipeline)
    assert raw.token_ids == chat.token_ids == (word,)
    assert pipeline.decoder(raw).push([word]) == " foo"
    assert pipeline.decoder(chat).push([word]) == "foo"


def test_a_prompt_cut_inside_a_character_is_completed() -> None:
    encoded = encode(TokenPrompt((*b"prompt", 0xC3)))
    assert BYTES.decoder(encoded).push([0xA9, 0x21]) == "é!"


def test_threads_share_one_pipeline() -> None:
    texts = [f"text {i} é" * 50 for i in range(40)]
    with ThreadPoolExecutor(8) as pool:
        encoded = list(pool.map(lambda text: encode(TextPrompt(text)), texts))
    assert [bytes(item.token_ids).decode() for item in encoded] == texts


def test_it_loads_neither_torch_nor_transformers() -> None:
    check = (
        "import sys, models.text.pipeline; assert not {'torch', 'transformers'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", check], check=True)


def test_tokens_without_what_generation_adds() -> None:
    assert BYTES.tokenize(TextPrompt("")) == ()
    assert BYTES.tokenize(TokenPrompt((1, 2))) == (1, 2)
    assert BYTES.tokenize(CHAT) == encode(CHAT).token_ids
    assert BYTES.token_strings([BOS, 65, 32]) == ["<|bos|>", "A", "Ġ"]


def test_a_raw_text_may_go_without_special_tokens() -> None:
    tokenizer = byte_tokenizer()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<|bos|> $A", special_tokens=[("<|bos|>", BOS)]
    )
    pipeline = TextPipeline(tokenizer, special_tokens={})
    assert pipeline.tokenize(TextPrompt("a")) == (BOS, 97)
    assert pipeline.tokenize(TextPrompt("a"), special_tokens=False) == (97,)


def test_ids_become_text_again() -> None:
    assert BYTES.detokenize(BYTES.tokenize(TextPrompt("naïve 日本"))) == "naïve 日本"
    assert BYTES.detokenize([BOS]) == "<|bos|>"
    for ask in (BYTES.detokenize, BYTES.token_strings):
        with pytest.raises(Invalid, match="outside"):
            ask([BYTES.vocab_size])


def test_only_the_end_of_a_prompt_is_read_on_request() -> None:
    request = GenerateRequest(id="r", prompt=TextPrompt("abcdef"), truncate_prompt_tokens=4)
    assert BYTES.encode(request).token_ids == (*b"cdef",)
    assert BYTES.encode(replace(request, truncates_end=True)).token_ids == (*b"abcd",)
    whole = replace(request, truncate_prompt_tokens=9, truncates_end=True)
    assert BYTES.encode(whole).token_ids == (*b"abcdef",)


def test_the_tokenizers_own_tokens_are_added_as_asked() -> None:
    tokenizer = byte_tokenizer()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<|bos|> $A", special_tokens=[("<|bos|>", BOS)]
    )
    template = "{{ messages[0].content }}"
    begun = TextPipeline(tokenizer, special_tokens={"bos_token": "<|bos|>"}, chat_template=template)
    text = TextPrompt("a")
    chat = ChatPrompt(({"role": "user", "content": "a"},))
    for prompt, beginning in (
        (text, True),
        (replace(text, special_tokens=False), False),
        (chat, False),
        (replace(chat, special_tokens=True), True),
    ):
        request = GenerateRequest(id="r", prompt=prompt)
        assert (begun.encode(request).token_ids[0] == BOS) is beginning
    assert refused(TextPrompt("", special_tokens=False), begun).param == "prompt"


def test_bad_words_are_spelled_alone_and_after_a_space() -> None:
    words = ("no", " no", "x y")
    expected = ((*b"no",), (*b" no",), (*b"x y",), (*b" x y",))
    assert encode(TextPrompt("a"), bad_words=words).bad_words == expected


def test_allowed_tokens_must_be_known() -> None:
    assert refused(TextPrompt("a"), allowed_token_ids=(5, 261)).param == "allowed_token_ids"


def test_a_token_by_itself() -> None:
    assert BYTES.spell(ord("a")) == ("a", b"a")
    assert BYTES.spell(0xE2) == ("\N{REPLACEMENT CHARACTER}", b"\xe2")
    assert BYTES.spell(END) == ("<|end|>", b"<|end|>")
    assert BYTES.spell(5000) == ("", b"")


def test_an_echo_is_what_was_sent_and_where_its_tokens_begin() -> None:
    sent = "a€b"
    encoded = encode(TextPrompt(sent))
    assert BYTES.echo(encoded, sent) == (sent, [0, 1, 1, 1, 2])
    assert BYTES.echo(encoded, None) == (sent, [0, 1, 1, 1, 2])
    control = encode(TextPrompt("a<|end|>b"))
    assert BYTES.echo(control, "a<|end|>b") == ("a<|end|>b", [0, 1, 8])
    assert BYTES.echo(control, None) == ("ab", [0, 1, 1])


def test_an_echo_ends_before_half_a_character() -> None:
    encoded = encode(TokenPrompt((*b"a\xe2\x82",)))
    assert BYTES.echo(encoded, None)[0] == "a"
    assert BYTES.decoder(encoded).push([0xAC]) == "€"


def test_special_tokens_are_shown_on_request() -> None:
    encoded = encode(TextPrompt("a"))
    assert BYTES.decoder(encoded, skip_special=False).push([*b"b", USER, *b"c"]) == "b<|user|>c"
    assert BYTES.decoder(encoded).push([*b"b", USER, *b"c"]) == "bc"
