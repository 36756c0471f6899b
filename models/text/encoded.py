"""What a request is once it is encoded."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from models.request import Grammar, ThinkingLimit
from models.text.parsing import Reading


@dataclass(frozen=True, slots=True)
class Encoded:
    """A request as a model and a decoder need it.

    ``stop_ids`` maps each token that ends the answer to the stop as its caller spelled it, None
    for an end-of-sequence token. ``stops`` are for the text: not empty, each once. ``continues``
    tells whether the answer goes on with the prompt's text or, in a chat, starts its own.
    ``grammar`` is what the whole answer must match, ``bad_words`` are the request's as runs of
    tokens. ``thinking`` is None where nothing is to be limited.
    """

    token_ids: tuple[int, ...]
    stop_ids: Mapping[int, str | int | None]
    stops: tuple[str, ...]
    continues: bool = True
    reading: Reading = field(default_factory=Reading)
    grammar: Grammar | None = None
    bad_words: tuple[tuple[int, ...], ...] = ()
    thinking: ThinkingLimit | None = None
