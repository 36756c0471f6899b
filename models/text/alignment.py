"""Which tokens an answer's text came from, while some of it is held back."""

from __future__ import annotations

from collections import deque
from typing import NamedTuple


class _Stretch(NamedTuple):
    """Characters of the text, and how many of all tokens it took to make all up to its end."""

    start: int
    end: int
    tokens: int


class Alignment:
    """Follows one answer: tokens, the text they make, and how much of that has come out.

    ``told`` counts the leading tokens that belong to the text that is out. A token without text
    of its own, such as half a character, belongs to the text that comes next.
    """

    def __init__(self) -> None:
        self.told = 0
        self._offsets: list[int] = []
        self._made = 0
        self._out = 0
        self._stretches: deque[_Stretch] = deque()

    def add_token(self) -> None:
        """One more token, whose text is not known yet."""
        self._offsets.append(self._made)

    def add_text(self, characters: int) -> None:
        """What the tokens so far make now, after what they made before."""
        if characters:
            end = self._made + characters
            self._stretches.append(_Stretch(self._made, end, len(self._offsets)))
            self._made = end

    def offset(self, token: int) -> int:
        """Characters before the text of a token; for one that was never decoded, all of them."""
        return self._offsets[token] if token < len(self._offsets) else self._made

    def release(self, characters: int, *, cut: bool) -> None:
        """So much more text is out. With ``cut`` it ends here, maybe within a token's text."""
        self._out += characters
        while self._stretches and self._is_out(self._stretches[0], cut=cut):
            self.told = self._stretches.popleft().tokens

    def _is_out(self, stretch: _Stretch, *, cut: bool) -> bool:
        return (stretch.start < self._out) if cut else (stretch.end <= self._out)
