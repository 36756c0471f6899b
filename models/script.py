"""A scripted answer: which piece comes next, what is held back, where it ends."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Sequence

from models.events import Event, Finished, FinishReason, Text, TokenLogprob, TopLogprob, Usage
from models.request import GenerateRequest
from models.text.alignment import Alignment
from models.text.stop import StopMatcher


class ScriptedChoice:
    """One answer of the mock engine as it grows, a piece a token."""

    def __init__(
        self,
        index: int,
        request: GenerateRequest,
        pieces: Sequence[str],
        room: int,
        usage: Usage,
    ) -> None:
        sampling = request.sampling
        self._index = index
        self._request = request
        self._pieces = pieces
        self._alignment = Alignment()
        self._ids: list[int] = []
        self._told = 0
        self._script = _script(pieces, sampling.min_tokens, sampling.ignore_eos)
        self._limit = room if sampling.max_tokens is None else min(room, sampling.max_tokens)
        self._min_tokens = sampling.min_tokens
        self._stop_ids = frozenset(sampling.stop_token_ids)
        self._matcher = StopMatcher(request.stop, keep=request.include_stop)
        self._usage = usage
        self._tokens = 0
        self.finished = False

    def advance(self) -> Iterator[Event]:
        """The events of one more token."""
        if self._limit == 0:
            yield from self._finish(FinishReason.LENGTH)
            return
        token, piece = next(self._script, (None, ""))
        if token is None:
            yield from self._finish(FinishReason.STOP)
            return
        self._tokens += 1
        self._ids.append(token)
        self._alignment.add_token()
        if token in self._stop_ids and self._tokens > self._min_tokens:
            yield from self._finish(FinishReason.STOP, token)
            return
        self._alignment.add_text(len(piece))
        yield from self._say(self._matcher.push(piece, armed=self._tokens > self._min_tokens))
        if self._matcher.stop is not None:
            yield from self._finish(FinishReason.STOP)
        elif self._tokens == self._limit:
            yield from self._finish(FinishReason.LENGTH)

    def expire(self) -> Iterator[Event]:
        """The events of an end by time."""
        yield from self._finish(FinishReason.LENGTH)

    def _say(self, text: str) -> Iterator[Event]:
        self._alignment.release(len(text), cut=self._matcher.stop is not None)
        if text:
            yield Text(text, self._index, *self._tell(self._alignment.told))

    def _tell(self, end: int) -> tuple[tuple[TokenLogprob, ...], tuple[int, ...]]:
        span = range(self._told, max(end, self._told))
        self._told = span.stop
        request, top = self._request, self._request.sampling.logprobs
        ids = tuple(self._ids[i] for i in span) if request.return_token_ids else ()
        if top is None:
            return (), ids
        return tuple(self._logprob(i, top) for i in span), ids

    def _logprob(self, place: int, top: int) -> TokenLogprob:
        token, offset = self._ids[place], self._alignment.offset(place)
        size = len(self._pieces)
        others = [TopLogprob(i, *spell(self._pieces[i]), float(token - i)) for i in range(size)]
        likely = tuple(sorted(others[token:], key=lambda one: -one.logprob)[:top])
        return TokenLogprob(token, *spell(self._pieces[token]), 0.0, likely, 1, offset)

    def _finish(self, reason: FinishReason, stop_id: int | None = None) -> Iterator[Event]:
        self.finished = True
        yield from self._say(self._matcher.flush())
        stop = self._matcher.stop
        usage = Usage(self._usage.prompt_tokens, self._tokens, self._usage.cached_tokens)
        reason = reason if stop is None else FinishReason.STOP
        matched = stop_id if stop is None else stop
        yield Finished(reason, usage, matched, self._index, *self._tell(self._tokens))


def _script(pieces: Sequence[str], min_tokens: int, endless: bool) -> Iterator[tuple[int, str]]:
    again = itertools.cycle(enumerate(pieces))
    return again if endless else itertools.islice(again, max(len(pieces), min_tokens))


def split(text: str) -> tuple[str, ...]:
    """Cuts text into words with the white space before them."""
    return tuple(re.findall(r"\s*\S+|\s+$", text))


def spell(piece: str) -> tuple[str, bytes]:
    """A piece as ``TokenLogprob`` tells it."""
    return piece, piece.encode()
