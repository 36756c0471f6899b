"""Answers of one choice that a dialect tells in named events and, at the end, as a whole."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from typing import Any, Protocol

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from deployments.access import Access, access_of
from deployments.connection import while_connected
from deployments.engines import Served, engine_named
from deployments.event_stream import EventStream
from deployments.openai import sse
from deployments.openai.call import Call
from deployments.openai.errors import ApiError
from deployments.openai.sse import Told
from deployments.rates.charging import charge_generation
from deployments.reply import Progress
from deployments.streams import Numbered, generate
from models.engine import LlmEngine
from models.errors import EngineError, TooLong
from models.events import Event

Keep = Callable[[], Awaitable[None]]
Shorten = Callable[[TooLong], Call | None]


class Transcript(Protocol):
    """One answer as it comes about. What is told in a stream and the whole always agree."""

    def tell(self, event: Event) -> Sequence[Told]:
        """What a stream says at this event."""
        ...

    def end(self) -> Sequence[Told]:
        """The last that a stream says, all events having come."""
        ...

    def fail(self, error: ApiError) -> Sequence[Told]:
        """The last that a broken stream says."""
        ...

    def error(self, error: EngineError) -> ApiError:
        """What an engine raised, in the dialect's words."""
        ...

    def whole(self) -> Mapping[str, Any]:
        """The answer of a request that does not stream."""
        ...


async def _nothing() -> None:
    pass


def _never(error: TooLong) -> None:
    return None


@dataclass(frozen=True, slots=True)
class Telling:
    """Answers a call by a transcript. ``keep`` is awaited before the answer's last words.

    ``shorten`` makes a shorter call of one that was too long, or None.
    """

    call: Call
    transcript: Transcript
    timeout_s: float
    keep_alive_s: float | None
    keep: Keep = _nothing
    shorten: Shorten = _never

    async def answer(
        self, engines: Mapping[str, Served], scope: Scope, receive: Receive, send: Send
    ) -> None:
        """Raises ``ApiError`` before the answer has begun, never after."""
        access = access_of(scope)
        engine = engine_named(engines, self.call.model)
        access.model, access.named = self.call.model, self.call.name
        response = await while_connected(receive, self._answer(engine, access, send))
        if response is not None:
            await response(scope, receive, send)

    async def _answer(self, engine: LlmEngine, access: Access, send: Send) -> Response | None:
        try:
            if access.allowance is not None:
                await charge_generation(access.allowance, self.call.requests, engine)
            return await self._charged_answer(engine, access, send)
        except EngineError as error:
            raise self.transcript.error(error) from error

    async def _charged_answer(
        self, engine: LlmEngine, access: Access, send: Send
    ) -> Response | None:
        progress = Progress(self.call, access)
        requests = self.call.asked_with(access.key, counted=access.counts_tokens)
        try:
            async with aclosing(generate(engine, requests, self.timeout_s)) as events:
                if not self.call.stream:
                    return await self._whole(events, progress)
                with EventStream(send, self.keep_alive_s) as stream:
                    await _Stream(self, progress, access, stream).run(events)
                return None
        except TooLong as error:
            if (shorter := self.shorten(error)) is None:
                raise
            return await replace(self, call=shorter)._charged_answer(engine, access, send)

    async def _whole(self, events: AsyncGenerator[Numbered, None], progress: Progress) -> Response:
        async for _, event in events:
            progress.note(0, event)
            self.transcript.tell(event)
        progress.check_complete()
        await self.keep()
        body = sse.dumps(self.transcript.whole())
        return Response(body, media_type="application/json")


class _Stream:
    """Server-sent events, those of one engine event in one write."""

    def __init__(
        self, telling: Telling, progress: Progress, access: Access, stream: EventStream
    ) -> None:
        self._telling = telling
        self._transcript = telling.transcript
        self._progress = progress
        self._access = access
        self._stream = stream

    async def run(self, events: AsyncGenerator[Numbered, None]) -> None:
        """Raises ``ApiError`` or ``EngineError`` before the stream has begun, never after."""
        await self._stream.carry(self._tell_all(events), self._failed)

    async def _tell_all(self, events: AsyncGenerator[Numbered, None]) -> None:
        async for _, event in events:
            await self._tell(event)
        self._progress.check_complete()
        await self._telling.keep()
        await self._write(self._transcript.end())

    async def _tell(self, event: Event) -> None:
        self._progress.note(0, event)
        await self._write(self._transcript.tell(event))

    def _failed(self, error: ApiError | EngineError) -> bytes:
        if isinstance(error, EngineError):
            error = self._transcript.error(error)
        self._access.fail(error)
        return _bytes(self._transcript.fail(error))

    async def _write(self, told: Sequence[Told]) -> None:
        if told:
            await self._stream.write(_bytes(told))


def _bytes(told: Sequence[Told]) -> bytes:
    return b"".join(sse.named_event(name, data) for name, data in told)
