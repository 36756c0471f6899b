"""A model of one's own that says a given text over the byte tokenizer, whatever it is asked."""

from __future__ import annotations

from collections.abc import Sequence

from models.text.byte_tokenizer import END, byte_tokenizer


class Scripted:
    """Then the answer ends. What spells a control token is that token."""

    max_context = 8192

    def __init__(self, text: str) -> None:
        tokenizer = byte_tokenizer()
        end = tokenizer.token_to_id(END)
        self.vocab_size = tokenizer.get_vocab_size()
        self._script = [*tokenizer.encode(text, add_special_tokens=False).ids, end]

    def prefill(self, tokens: Sequence[int]) -> tuple[int, list[float]]:
        return 0, self._logits(0)

    def decode(self, state: int, token: int) -> tuple[int, list[float]]:
        return state + 1, self._logits(state + 1)

    def _logits(self, position: int) -> list[float]:
        chosen = self._script[min(position, len(self._script) - 1)]
        return [100.0 * (token == chosen) for token in range(self.vocab_size)]
