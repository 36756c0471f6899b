"""A tokenizer whose ids are bytes, for models of one's own and for tests; no files needed."""

from __future__ import annotations

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

BOS, END, SYSTEM, USER, ASSISTANT = "<|bos|>", "<|end|>", "<|system|>", "<|user|>", "<|assistant|>"

CHAT_TEMPLATE = """\
{{ bos_token }}
{%- for message in messages -%}
    {{ '<|' + message.role + '|>' + message.content + eos_token }}
{%- endfor -%}
{%- if add_generation_prompt %}{{ '<|assistant|>' }}{% endif -%}
"""


def byte_characters() -> dict[int, str]:
    """The printable character that stands for each byte in a byte-level vocabulary, as in GPT-2.

    Printable Latin-1 stands for itself; the other bytes, in order, are U+0100 and the following.
    """
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    characters = {byte: chr(byte) for byte in printable}
    return characters | {byte: chr(256 + i) for i, byte in enumerate(others)}


def byte_tokenizer() -> Tokenizer:
    """Ids 0 to 255 are the bytes of UTF-8; above them a few control tokens."""
    vocabulary = {character: byte for byte, character in byte_characters().items()}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    control = [BOS, END, SYSTEM, USER, ASSISTANT]
    tokenizer.add_special_tokens([AddedToken(token, special=True) for token in control])
    return tokenizer
