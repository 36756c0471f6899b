"""A scripted engine: real in every respect but its thinking, with delays and failures on demand."""

from __future__ import annotations

import asyncio
import itertools
import math
from collections import deque
from collections.abc import AsyncGenerator, Sequence
from typing import Literal

from models.errors import Busy, EngineError, Failed, Invalid, TimedOut, TooLong
from models.events import Event, Started, TokenLogprob, Usage
from models.request import ChatPrompt, GenerateRequest, Prompt, TextPrompt, TokenPrompt
from models.script import ScriptedChoice, spell, split

Failure = Literal["invalid", "too_long", "busy", "failed", "crash"]

DEFAULT_TEXT = "The quick brown fox jumps over the lazy dog."


class MockEngine:
    """Answers every prompt with the same pieces, one piece a token.

    A piece's position in the script is its token id, its logprob 0; the pieces after it are the
    likeliest ones beside it. With ``ignore_eos`` and below ``min_tokens`` the script starts over.
    With ``follows_grammars`` the script is taken to match any grammar.
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
        self.requests: deque[GenerateRequest] = deque(maxlen=256)
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
        _check_scripted(request)
        if request.grammar and not self.follows_grammars:
            raise Invalid("The mock engine follows no grammars.", request.grammar.param)
        pieces = _prompt_pieces(request)
        self._admit(len(pieces))
        self.live += 1
        ends = asyncio.get_running_loop().time() + (request.timeout_s or math.inf)
        try:
            await _sleep_until(ends, self._first_token_s)
            self._fail_at(None)
            yield _started(request, pieces, self._cached_tokens)
            async for event in self._answer(request, len(pieces), ends):
                yield event
        finally:
            self.live -= 1

    def _admit(self, prompt_tokens: int) -> None:
        if prompt_tokens >= self.max_context:
            raise TooLong(prompt_tokens, self.max_context)
        if self._max_running is not None and self.live >= self._max_running:
            raise Busy("The model is answering as much as it can.", self._retry_after)

    async def _answer(
        self, request: GenerateRequest, prompt_tokens: int, ends: float
    ) -> AsyncGenerator[Event, None]:
        usage = Usage(prompt_tokens, 0, self._cached_tokens)
        room = self.max_context - prompt_tokens
        running = [ScriptedChoice(i, request, self._pieces, room, usage) for i in range(request.n)]
        for step in itertools.count():
            self._fail_at(step)
            for event in [event for choice in running for event in choice.advance()]:
                yield event
            running = [choice for choice in running if not choice.finished]
            if not running:
                return
            try:
                await _sleep_until(ends, self._inter_token_s)
            except TimedOut:
                for event in [event for choice in running for event in choice.expire()]:
                    yield event
                return

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


def _words(prompt: Prompt) -> tuple[str, ...]:
    if isinstance(prompt, TokenPrompt):
        return tuple(f"<{token_id}>" for token_id in prompt.token_ids)
    if isinstance(prompt, ChatPrompt):
        contents = (str(message.get("content")) for message in prompt.messages)
        return tuple(word for content in contents for word in split(content))
    return split(prompt.text)


def _prompt_pieces(request: GenerateRequest) -> tuple[str, ...]:
    words, most = _words(request.prompt), request.truncate_prompt_tokens
    if most is None:
        return words
    return words[:most] if request.truncates_end else words[-most:]


def _started(request: GenerateRequest, pieces: Sequence[str], cached: int) -> Started:
    ids = tuple(range(len(pieces)))
    starts = itertools.accumulate(map(len, pieces), initial=0)
    logprobs = [
        TokenLogprob(i, *spell(piece), 0.0 if i else None, rank=1 if i else None, offset=start)
        for i, piece, start in zip(ids, pieces, starts, strict=False)
    ]
    text = "".join(pieces)
    if isinstance(request.prompt, TextPrompt) and request.truncate_prompt_tokens is None:
        text = request.prompt.text
    return Started(
        len(pieces),
        cached,
        text if request.echo else "",
        ids if request.return_token_ids else (),
        () if request.sampling.prompt_logprobs is None else tuple(logprobs),
    )


def _check_scripted(request: GenerateRequest) -> None:
    for name in ("bad_words", "allowed_token_ids"):
        if getattr(request.sampling, name):
            raise Invalid(f"A scripted answer cannot heed {name}.", name)
    if isinstance(request.prompt, TextPrompt) and request.prompt.suffix:
        raise Invalid("A scripted answer cannot heed suffix.", "suffix")


async def _sleep_until(ends: float, seconds: float) -> None:
    """Sleeps for ``seconds``; raises ``TimedOut`` when it is ``ends`` on the loop's clock."""
    left = ends - asyncio.get_running_loop().time()
    await asyncio.sleep(min(seconds, max(left, 0.0)))
    if left <= seconds:
        raise TimedOut
