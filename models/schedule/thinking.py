"""How far one answer is in its reasoning, by its tokens, and what a limit of it asks for."""

from __future__ import annotations

from collections import abc

from models.request import MOST, ThinkingLimit


class Thinking:
    """Follows an answer that begins behind ``start`` tokens.

    All depends on the tokens alone: so it is the same whenever and with whomever they are computed.
    """

    def __init__(self, limit: ThinkingLimit, start: int) -> None:
        self._limit = limit
        self._seen = start
        self._inside = limit.opened
        self._spent = 0  # tokens inside
        self._begun = 0  # tokens of the marker that have come in a row
        self._over = False  # there is no more reasoning

    def room(self, tokens: abc.Sequence[int]) -> int:
        """How many more tokens are left to the model, whatever they are; 0: they must be known."""
        self._follow(tokens)
        return MOST if self._over else max(0, self._limit.tokens - self._spent)

    def forced(self, tokens: abc.Sequence[int]) -> int | None:
        """The only token that may come after these."""
        return self._limit.end if not self.room(tokens) and self._inside else None

    def banned(self, tokens: abc.Sequence[int]) -> tuple[int, ...]:
        """The token that would now take up the reasoning once more."""
        if self._limit.again and not self.room(tokens) and self._begun == 1:
            return (self._limit.begin[1],)
        return ()

    def _follow(self, tokens: abc.Sequence[int]) -> None:
        for place in range(self._seen, len(tokens)):
            if self._over:
                break
            self._read(tokens[place])
        self._seen = len(tokens)

    def _read(self, token: int) -> None:
        limit = self._limit
        if self._inside and token not in limit.ends:
            self._spent += 1
        elif self._inside:
            self._inside, self._over = False, not limit.again
            self._begun = int(token == limit.begin[0])
        else:
            goes_on = token == limit.begin[self._begun]
            self._begun = self._begun + 1 if goes_on else int(token == limit.begin[0])
            self._over = not (self._begun or limit.again or token in limit.blank)
            if self._begun == len(limit.begin):
                self._inside, self._begun = True, 0
