"""From a request to token ids: what it takes to encode it, and what a prompt may be."""

from __future__ import annotations

from collections.abc import Sequence

from models.errors import TooLong
from models.request import ChatPrompt, GenerateRequest, Prompt, TextPrompt
from models.text.encoded import Encoded
from models.text.pipeline import TextPipeline

MESSAGE = 64  # characters that a message is worth, beside its own


def encode(text: TextPipeline, request: GenerateRequest, max_context: int) -> Encoded:
    """Raises ``EngineError``: a prompt beyond ``max_context`` goes no further."""
    encoded = text.encode(request)
    if len(encoded.token_ids) >= max_context:
        raise TooLong(len(encoded.token_ids), max_context)
    return encoded


def size_of(request: GenerateRequest) -> int:
    """About how many characters are to be encoded for it."""
    return characters(request.prompt, (*request.stop, *request.sampling.bad_words))


def characters(prompt: Prompt, beside: Sequence[str] = ()) -> int:
    """About what a prompt takes to encode; a message costs something even when it is empty."""
    others = sum(map(len, beside))
    match prompt:
        case ChatPrompt(messages, tools, documents):
            parts = (*messages, *tools, *documents)
            return others + sum(MESSAGE + len(str(part)) for part in parts)
        case TextPrompt(text, suffix):
            return others + len(text) + len(suffix)
        case _:
            return others
