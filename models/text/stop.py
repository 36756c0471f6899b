"""Where an answer's text ends, and how much of it must wait until that is known.

The text decides, never how it is cut into pieces. The one holdback of the project: whatever looks
for a marker in streamed text uses ``StopMatcher``.
"""

from __future__ import annotations

from collections.abc import Iterable


class StopMatcher:
    """Finds the first of ``stops`` in a text that comes in pieces.

    The leftmost match wins, and among stops that start at the same place the one that completes
    first. Empty stops are ignored and duplicates count once; without stops nothing is held.
    A stop inside a longer one that may still match further left waits for it. The cost of a piece
    depends on its own length only. With ``keep`` the stop itself still belongs to the text.
    """

    def __init__(self, stops: Iterable[str], *, keep: bool = False) -> None:
        self.stop: str | None = None
        self.match_end: int | None = None  # characters up to the end of the best match so far
        self.rest = ""  # once a stop matched: the text pushed behind it
        self._match: str | None = None
        self._keep = keep
        self._begun = _Begun(tuple(dict.fromkeys(stop for stop in stops if stop)), 0, None)
        self._seen = 0  # characters of the text followed so far
        self._released = 0  # characters handed out
        self._held = ""  # those after them

    @property
    def held(self) -> str:
        """The end of the text that may still turn out to belong to a stop."""
        return self._held

    def push(self, text: str, *, armed: bool = True) -> str:
        """The text that can no longer become a stop; nothing more once ``stop`` is set.

        A match that ends in text that is not ``armed`` does not count.
        """
        if self.stop is not None:
            return ""
        if not self._begun.stops:
            return text
        self._held += text
        for char in text:
            self._seen += 1
            self._begun = self._begun.then(char)
            if armed:
                self._note_match()
            if self._decided():
                return self._cut()
        return self._release(self._seen - self._begun.held)

    def flush(self) -> str:
        """What was held, as the text ends here; it may set ``stop``."""
        if self._match is not None and self.stop is None:
            return self._cut()
        return self._release(self._seen)

    def _note_match(self) -> None:
        match = self._begun.match
        if match is not None and (self._match is None or self._starts_earlier(match)):
            self._match, self.match_end = match, self._seen

    def _starts_earlier(self, match: str) -> bool:
        return self._seen - len(match) < self._match_start()

    def _match_start(self) -> int:
        assert self._match is not None
        assert self.match_end is not None
        return self.match_end - len(self._match)

    def _decided(self) -> bool:
        """Whether there is a match that nothing begun further left can overtake."""
        return self._match is not None and self._seen - self._begun.held >= self._match_start()

    def _cut(self) -> str:
        assert self._match is not None
        assert self.match_end is not None
        released = self._release(self.match_end if self._keep else self._match_start())
        self.stop = self._match
        self.rest = self._held if self._keep else self._held[len(self._match) :]
        self._held = ""
        return released

    def _release(self, end: int) -> str:
        count = end - self._released
        released, self._held = self._held[:count], self._held[count:]
        self._released = end
        return released


class _Begun:
    """The longest end of a text that begins some stop: a state of Aho and Corasick's automaton.

    (Efficient string matching, CACM 18(6), 1975.) States are made when first reached, so long
    stops cost nothing until the text follows them.
    """

    __slots__ = ("_longer", "depth", "held", "match", "shorter", "stops")

    def __init__(self, stops: tuple[str, ...], depth: int, shorter: _Begun | None) -> None:
        self.stops = stops  # those that begin so
        self.depth = depth  # characters
        self.shorter = shorter  # the next longest end that begins some stop
        self.held = depth  # characters of the longest end that is a proper prefix of some stop
        if shorter and all(len(stop) == depth for stop in stops):
            self.held = shorter.held
        whole = next((stop for stop in stops if len(stop) == depth), None)
        self.match: str | None = whole or (shorter.match if shorter else None)  # longest, ends here
        self._longer: dict[str, _Begun | None] = {}

    def then(self, char: str) -> _Begun:
        state = self
        while (longer := state._extended(char)) is None:
            if state.shorter is None:
                return state
            state = state.shorter
        return longer

    def _extended(self, char: str) -> _Begun | None:
        if char not in self._longer:
            self._longer[char] = self._extend(char)
        return self._longer[char]

    def _extend(self, char: str) -> _Begun | None:
        depth = self.depth
        stops = tuple(stop for stop in self.stops if stop[depth : depth + 1] == char)
        if not stops:
            return None
        shorter = self.shorter.then(char) if self.shorter else self
        return _Begun(stops, depth + 1, shorter)
