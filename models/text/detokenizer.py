"""One choice's token ids to the text that may be sent: whole characters, up to the first stop."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from models.text.alignment import Alignment
from models.text.incremental import IncrementalText
from models.text.stop import StopMatcher


class TextDecoder:
    """Decodes ids into ``text`` and ends it before the first of ``stops``.

    Stops in the text of the first ``min_tokens`` tokens do not count. ``tokens`` counts the tokens
    consumed; once ``stop`` is set, those up to and including the one that completed it.
    ``keep_stop`` leaves the stop in the text; ``alignment`` is told which token brought what.
    """

    def __init__(
        self,
        text: IncrementalText,
        stops: Iterable[str] = (),
        *,
        min_tokens: int = 0,
        keep_stop: bool = False,
        alignment: Alignment | None = None,
    ) -> None:
        self.tokens = 0
        self.alignment = alignment
        self._text = text
        self._stops = StopMatcher(stops, keep=keep_stop)
        self._min_tokens = min_tokens
        self._match_end: int | None = None
        self._match_tokens = 0

    @property
    def stop(self) -> str | None:
        """The stop that matched, as its caller spelled it; nothing more comes out then."""
        return self._stops.stop

    def push(self, token_ids: Sequence[int]) -> str:
        """The text that is safe to send now; tokens after a stop are not consumed."""
        if len(token_ids) == 1:
            return self._push(token_ids[0])
        return "".join(map(self._push, token_ids))

    def flush(self) -> str:
        """What was held, once, as no more tokens follow.

        It may set ``stop``: to a match that waited for a longer one begun further left.
        """
        text = self._match(self._text.flush())
        held = self._stops.flush()
        self._release(held)
        return text + held

    def add(self, stop: str) -> str:
        """The text of a stop that was one token, after all else: it may have none of its own."""
        self.tokens += 1
        if self.alignment is not None:
            self.alignment.add_token()
            self.alignment.add_text(len(stop))
            self.alignment.release(len(stop), cut=False)
        return stop

    def _push(self, token_id: int) -> str:
        if self.stop is not None:
            return ""
        self.tokens += 1
        if self.alignment is not None:
            self.alignment.add_token()
        return self._match(self._text.push(token_id))

    def _match(self, text: str) -> str:
        if self.alignment is not None:
            self.alignment.add_text(len(text))
        released = self._stops.push(text, armed=self.tokens > self._min_tokens)
        self._release(released)
        return released

    def _release(self, text: str) -> None:
        self._count()
        if self.alignment is not None:
            self.alignment.release(len(text), cut=self.stop is not None)

    def _count(self) -> None:
        if self._stops.match_end != self._match_end:
            self._match_end = self._stops.match_end
            self._match_tokens = self.tokens
        if self.stop is not None:
            self.tokens = self._match_tokens
