"""A scripted engine: real in every respect but its thinking, with delays and failures on demand."""

from __future__ import annotations

import asyncio
import itertools
import re
from collections.abc import AsyncGenerator, Iterator, Sequence
from typing import Literal

from models.errors import Busy, EngineError, Failed, Invalid, TooLong
from models.events import Event, Finished, FinishReason, Started, Text, Usage
from models.request import ChatPrompt, GenerateRequest, Prompt, TokenPrompt
from models.text.stop import StopMatcher

Failure = Literal["invalid", "too_long", "busy", "failed", "crash"]

DEFAULT_TEXT = "The quick brown fox jumps over the lazy dog."


class MockEngine:
    """Answers every prompt with the same pieces, one piece a token.

    A piece's position in the script is its token id. With ``ignore_eos`` and below ``min_tokens``
    the script starts over. With ``follows_grammars`` the script is taken to match any grammar.
    ``failure`` happens before ``Started``, or after ``fail_after`` pieces of each choice. ``live``
    counts the requests that are being answered.
    """

    def __init__(
        self,
        name: str,
        *,
        text: str = DEFAULT_TEXT,
        pieces: Sequence[str] | None = None,
        first_token_s: float = 0.0,
        inter_token_s: float = 0.0,
        failure: Failure | None = None,
        fail_after: int | None = None,
        max_running: int | None = None,
        retry_after: float = 1.0,
        max_context: int = 4096,
        cached_tokens: int = 0,
        follows_grammars: bool = False,
    ) -> None:
        self.name = name
        self.max_context = max_context
        self.follows_grammars = follows_grammars
        self.live = 0
        self.requests: list[GenerateRequest] = []
        self._pieces = tuple(pieces) if pieces is not None else split(text)
        self._first_token_s = first_token_s
        self._inter_token_s = inter_token_s
        self._failure = failure
        self._fail_after = fail_after
        self._max_running = max_running
        self._retry_after = retry_after
        self._cached_tokens = cached_tokens

    async def generate(self, request: GenerateRequest) -> AsyncGenerator[Event, None]:
        """Yields the script as an ``LlmEngine``; ``n`` choices advance in turn."""
        self.requests.append(request)
        prompt_tokens = count_tokens(request.prompt)
        if request.grammar and not self.follows_grammars:
            raise Invalid("The mock engine follows no grammars.", request.grammar.param)
        self._admit(prompt_tokens)
        self.live += 1
        try:
            await asyncio.sleep(self._first_token_s)
            self._fail_at(None)
            yield Started(prompt_tokens, self._cached_tokens)
            async for event in self._answer(request, prompt_tokens):
                yield event
        finally:
            self.live -= 1

    def _admit(self, prompt_tokens: int) -> None:
        if prompt_tokens >= self.max_context:
            raise TooLong(prompt_tokens, self.max_context)
        if self._max_running is not None and self.live >= self._max_running:
            raise Busy("The model is answering as much as it can.", self._retry_after)

    async def _answer(
        self, request: GenerateRequest, prompt_tokens: int
    ) -> AsyncGenerator[Event, None]:
        usage = Usage(prompt_tokens, 0, self._cached_tokens)
        room = self.max_context - prompt_tokens
        running = [_Choice(i, request, self._pieces, room, usage) for i in range(request.n)]
        for step in itertools.count():
            self._fail_at(step)
            for event in [event for choice in running for event in choice.advance()]:
                yield event
            running = [choice for choice in running if not choice.finished]
            if not running:
                return
            await asyncio.sleep(self._inter_token_s)

    def _fail_at(self, pieces: int | None) -> None:
        if self._failure is not None and pieces == self._fail_after:
            raise self._error(self._failure)

    def _error(self, failure: Failure) -> Exception:
        if failure == "crash":
            return RuntimeError("The mock engine crashed as it was told to.")
        errors: dict[str, EngineError] = {
            "invalid": Invalid("The mock engine refuses this request.", "messages"),
            "too_long": TooLong(self.max_context + 1, self.max_context),
            "busy": Busy("The mock engine is busy.", self._retry_after),
            "failed": Failed("The mock engine failed."),
        }
        return errors[failure]


class _Choice:
    """One answer as it grows."""

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
        self._script = _script(pieces, len(pieces), sampling.min_tokens, sampling.ignore_eos)
        self._limit = min(room, sampling.max_tokens or room)
        self._min_tokens = sampling.min_tokens
        self._stop_ids = frozenset(sampling.stop_token_ids)
        self._matcher = StopMatcher(request.stop)
        self._usage = usage
        self._tokens = 0
        self.finished = False

    def advance(self) -> Iterator[Event]:
        """The events of one more token."""
        token, piece = next(self._script, (None, ""))
        if token is None:
            yield from self._finish(FinishReason.STOP)
            return
        self._tokens += 1
        if token in self._stop_ids and self._tokens > self._min_tokens:
            yield from self._finish(FinishReason.STOP, token)
            return
        yield from self._say(self._matcher.push(piece, armed=self._tokens > self._min_tokens))
        if self._matcher.stop is not None:
            yield from self._finish(FinishReason.STOP)
        elif self._tokens == self._limit:
            yield from self._finish(FinishReason.LENGTH)

    def _say(self, text: str) -> Iterator[Event]:
        if text:
            yield Text(text, self._index)

    def _finish(self, reason: FinishReason, stop_id: int | None = None) -> Iterator[Event]:
        self.finished = True
        yield from self._say(self._matcher.flush())
        stop = self._matcher.stop
        usage = Usage(self._usage.prompt_tokens, self._tokens, self._usage.cached_tokens)
        reason = reason if stop is None else FinishReason.STOP
        yield Finished(reason, usage, stop_id if stop is None else stop, self._index)


def _script(
    pieces: Sequence[str], length: int, min_tokens: int, endless: bool
) -> Iterator[tuple[int, str]]:
    again = itertools.cycle(enumerate(pieces))
    return again if endless else itertools.islice(again, max(length, min_tokens))


def split(text: str) -> tuple[str, ...]:
    """Cuts text into words with the white space before them."""
    return tuple(re.findall(r"\s*\S+|\s+$", text))


def count_tokens(prompt: Prompt) -> int:
    """Words of a text or a chat, ids of a token prompt."""
    if isinstance(prompt, TokenPrompt):
        return len(prompt.token_ids)
    if isinstance(prompt, ChatPrompt):
        return sum(len(split(str(message.get("content")))) for message in prompt.messages)
    return len(split(prompt.text))
