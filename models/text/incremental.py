"""Token ids to text, one id at a time: text comes out when no later id can change it.

The pieces joined are exactly what the tokenizer makes of all ids at once, with or without its
special tokens, or with those that are asked for; but where byte tokens such as ``<0xC3>`` are not
UTF-8, only those bytes are replaced and not all of their run. The cost of an id does not depend on
how many came before.
"""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Collection, Iterator, Sequence
from itertools import islice
from typing import Any, Protocol

from tokenizers import Tokenizer

from models.text.byte_tokenizer import byte_characters

_BYTES = {character: byte for byte, character in byte_characters().items()}
_BYTE_TOKEN = re.compile("<0x([0-9A-Fa-f]{2})>")
_REPLACEMENT = "\N{REPLACEMENT CHARACTER}"
_CHARACTER_BYTES = 4  # most bytes of one character in UTF-8


class IncrementalText(Protocol):
    """The text of one sequence of ids."""

    def push(self, token_id: int) -> str:
        """The text that is certain now and was not before; never half a character."""
        ...

    def flush(self) -> str:
        """The rest, as no more ids follow."""
        ...


class Detokenizer:
    """What one tokenizer's incremental texts share. Safe to use from several threads.

    Special tokens are not text, except those that are ``shown``, or all without ``skip_special``.
    """

    def __init__(
        self, tokenizer: Tokenizer, shown: Collection[str] = (), *, skip_special: bool = True
    ) -> None:
        self._tokenizer = tokenizer
        special = {
            id: token.content
            for id, token in tokenizer.get_added_tokens_decoder().items()
            if token.special
        }
        hidden = {id for id, content in special.items() if content not in shown}
        self._special = frozenset(special)
        self._hidden = frozenset(hidden if skip_special else ())
        self._pieces: dict[int, str] = {}
        self._spelled: dict[int, bytes] = {}
        self._bytes: dict[int, bytes] = {}
        steps = _decoder_steps(tokenizer)
        self._byte_level = "ByteLevel" in steps and steps <= {"ByteLevel", "Fuse"}
        self._byte_fallback = "ByteFallback" in steps
        self._context = tokenizer.encode("a", add_special_tokens=False).ids[-1:]

    def start(self, prompt: Sequence[int] = ()) -> IncrementalText:
        """The text of ids that continue ``prompt``, of which nothing is repeated.

        A character that the prompt leaves incomplete comes out whole.
        """
        if self._byte_level:
            return _ByteLevelText(self, prompt)
        return _WindowText(self, prompt)

    def piece(self, token_id: int) -> str:
        """The token as the vocabulary spells it; empty if it is special or unknown."""
        piece = self._pieces.get(token_id)
        if piece is None:
            hidden = token_id in self._hidden
            piece = "" if hidden else self._tokenizer.id_to_token(token_id) or ""
            self._pieces[token_id] = piece
        return piece

    def byte(self, token_id: int) -> bytes | None:
        """The byte that the token stands for, if it is a byte token."""
        found = _BYTE_TOKEN.fullmatch(self.piece(token_id)) if self._byte_fallback else None
        return bytes.fromhex(found[1]) if found else None

    def spelled(self, token_id: int) -> bytes:
        """The bytes that a byte-level vocabulary spells with the token's piece."""
        spelled = self._spelled.get(token_id)
        if spelled is None:
            spelled = self._spelled[token_id] = _spelled_bytes(self.piece(token_id))
        return spelled

    def bytes_of(self, token_id: int) -> bytes:
        """What a token stands for in the middle of a text, special or not: maybe half a character.

        Empty if the vocabulary does not have it.
        """
        if token_id not in self._bytes:
            self._bytes[token_id] = self._spell(token_id)
        return self._bytes[token_id]

    def _spell(self, token_id: int) -> bytes:
        piece = self._tokenizer.id_to_token(token_id)
        if piece is None or token_id in self._special:
            return (piece or "").encode()
        if self._byte_level:
            return _spelled_bytes(piece)
        if byte := _BYTE_TOKEN.fullmatch(piece):
            return bytes.fromhex(byte[1])
        return self.within(token_id).encode()

    def within(self, token_id: int) -> str:
        """A token's text in the middle of others: at their start a decoder may drop a space."""
        before = self.decode(self._context)
        return self.decode([*self._context, token_id])[len(before) :]

    def decode(self, token_ids: Sequence[int]) -> str:
        return self._tokenizer.decode(token_ids, skip_special_tokens=False) if token_ids else ""


class _ByteLevelText:
    """For tokens that spell bytes: the text is the UTF-8 decoding of all of them."""

    def __init__(self, detokenizer: Detokenizer, prompt: Sequence[int]) -> None:
        self._spelled = detokenizer.spelled
        self._utf8 = codecs.getincrementaldecoder("utf-8")("replace")
        tail = list(islice(_last_shown(detokenizer, prompt), _CHARACTER_BYTES))
        for token_id in reversed(tail):
            self.push(token_id)

    def push(self, token_id: int) -> str:
        return self._utf8.decode(self._spelled(token_id))

    def flush(self) -> str:
        return self._utf8.decode(b"", final=True)


class _WindowText:
    """For any other decoder, which may treat the first token differently from the next ones.

    Decodes what is new after one token of context. Byte tokens are UTF-8 of their own.
    """

    def __init__(self, detokenizer: Detokenizer, prompt: Sequence[int]) -> None:
        self._detokenizer = detokenizer
        self._utf8 = codecs.getincrementaldecoder("utf-8")("replace")
        self._new: list[int] = []
        context, begun = _split_prompt(detokenizer, prompt)
        self._utf8.decode(begun)
        self._follow(context)

    def push(self, token_id: int) -> str:
        if not self._detokenizer.piece(token_id):
            return ""
        byte = self._detokenizer.byte(token_id)
        if byte is not None and (self._context or byte >= b"\x80"):  # the first may be a space
            held = self._take()
            self._follow([token_id])
            return held + self._utf8.decode(byte)
        cut = self._utf8.decode(b"", final=True)
        self._new.append(token_id)
        text = self._text()
        if text.endswith(_REPLACEMENT) and len(self._new) < _CHARACTER_BYTES:
            return cut
        return cut + self._take()

    def flush(self) -> str:
        return self._take() + self._utf8.decode(b"", final=True)

    def _text(self) -> str:
        return self._detokenizer.decode(self._context + self._new)[self._before :]

    def _take(self) -> str:
        """The text of the new tokens."""
        if not self._new:
            return ""
        text = self._text()
        self._follow(self._new[-1:])
        self._new = []
        return text

    def _follow(self, context: list[int]) -> None:
        self._context = context
        self._before = len(self._detokenizer.decode(context))


def _last_shown(detokenizer: Detokenizer, prompt: Sequence[int]) -> Iterator[int]:
    return (token_id for token_id in reversed(prompt) if detokenizer.piece(token_id))


def _split_prompt(detokenizer: Detokenizer, prompt: Sequence[int]) -> tuple[list[int], bytes]:
    """The last token of a prompt as context, and the bytes of a character it leaves incomplete."""
    last = list(islice(_last_shown(detokenizer, prompt), _CHARACTER_BYTES))
    spelled = b""
    for token_id in last:
        byte = detokenizer.byte(token_id)
        if byte is None:
            break
        spelled = byte + spelled
    return last[:1], spelled[codecs.utf_8_decode(spelled, "replace", False)[1] :]


def _spelled_bytes(piece: str) -> bytes:
    try:
        return bytes([_BYTES[character] for character in piece])
    except KeyError:  # an added token stands for itself
        return piece.encode()


def _decoder_steps(tokenizer: Tokenizer) -> set[str]:
    decoder = tokenizer.decoder
    state: Any = json.loads(decoder.__getstate__()) if decoder else {}
    return {step["type"] for step in state.get("decoders", [state]) if step}
