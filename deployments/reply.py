"""Events in, an answer out: the whole of it at once, or each event as it comes."""

from __future__ import annotations

from collections.abc import AsyncGenerator

from starlette.responses import Response

from deployments.access import Access
from deployments.event_stream import EventStream
from deployments.openai import sse
from deployments.openai.best import best
from deployments.openai.call import Call
from deployments.openai.errors import ApiError, engine_error
from deployments.openai.form import Choice, Form, Totals
from deployments.streams import Numbered
from models.errors import EngineError, Failed
from models.events import Event, Finished, FinishReason, Part, Reasoning, Started, Text, ToolCall

ANSWERED = (FinishReason.STOP, FinishReason.LENGTH, FinishReason.TOOL_CALLS)


class Progress:
    """How far an answer is; tells the access log of it."""

    def __init__(self, call: Call, access: Access) -> None:
        self.totals = Totals()
        self._unfinished = len(call.requests) * call.n
        self._reasons: set[str] = set()
        self._access = access

    def note(self, position: int, event: Event) -> None:
        """Counts what the event says."""
        if isinstance(event, Started):
            self.totals.start(event)
            self._access.prompt_tokens = self.totals.prompt_tokens
        elif isinstance(event, Finished):
            self._finish(position, event)
        else:
            self.totals.say(position, event)
            if event.token_ids:
                self._access.completion_tokens = self.totals.completion_tokens
            if self._access.first_token_s is None:
                self._access.first_token()

    def check_complete(self) -> None:
        """Raises ``Failed`` if the engine ended before every choice did."""
        if self._unfinished:
            raise Failed("The engine ended before its answer was complete.")
        self._access.finish = "+".join(sorted(self._reasons))

    def _finish(self, position: int, event: Finished) -> None:
        if event.reason not in ANSWERED:
            raise Failed(f"The engine ended its answer by '{event.reason}'.")
        self.totals.finish(position, event)
        self._access.completion_tokens = self.totals.completion_tokens
        self._unfinished -= 1
        self._reasons.add(event.reason)


async def whole_answer(
    call: Call, events: AsyncGenerator[Numbered, None], form: Form, access: Access
) -> Response:
    """The answer once all choices have ended; raises ``ApiError`` or ``EngineError``."""
    progress = Progress(call, access)
    starts: dict[int, Started] = {}
    parts: list[list[Part]] = [[] for _ in range(len(call.requests) * call.n)]
    ends: dict[int, Finished] = {}
    async for position, event in events:
        progress.note(position, event)
        if isinstance(event, Started):
            starts[position] = event
        elif isinstance(event, Finished):
            ends[position * call.n + event.choice] = event
        else:
            parts[position * call.n + event.choice].append(event)
    progress.check_complete()
    choices = [Choice(starts[i // call.n], part, ends[i]) for i, part in enumerate(parts)]
    if call.best is not None:
        choices = best(choices, call.n, call.best)
    body = sse.dumps(form.whole(choices, progress.totals))
    return Response(body, media_type="application/json")


class StreamedAnswer:
    """Server-sent events, each in a write of its own."""

    def __init__(self, call: Call, form: Form, access: Access, stream: EventStream) -> None:
        self._call = call
        self._form = form
        self._access = access
        self._stream = stream
        self._progress = Progress(call, access)

    async def run(self, events: AsyncGenerator[Numbered, None]) -> None:
        """Raises ``ApiError`` or ``EngineError`` before the stream has begun, never after."""
        await self._stream.carry(self._write_all(events), self._failed)

    async def _write_all(self, events: AsyncGenerator[Numbered, None]) -> None:
        async for position, event in events:
            await self._write_event(position, event)
        self._progress.check_complete()
        if self._call.shown.usage:
            await self._write(self._form.usage(self._progress.totals))
        await self._write(sse.DONE)

    async def _write_event(self, position: int, event: Event) -> None:
        self._progress.note(position, event)
        first, totals = position * self._call.n, self._progress.totals
        if isinstance(event, Text):
            await self._write(self._form.text(first + event.choice, event, totals))
        elif isinstance(event, Reasoning):
            await self._write(self._form.reasoning(first + event.choice, event, totals))
        elif isinstance(event, ToolCall):
            await self._write(self._form.tool_call(first + event.choice, event, totals))
        elif isinstance(event, Finished):
            await self._write(self._form.finish(first + event.choice, event, totals))
        else:
            for choice in range(self._call.n):
                await self._write(self._form.opening(first + choice, event, totals))

    async def _write(self, data: bytes) -> None:
        if data:
            await self._stream.write(data)

    def _failed(self, error: ApiError | EngineError) -> bytes:
        if isinstance(error, EngineError):
            error = engine_error(error, self._form.prompt_param)
        self._access.fail(error)
        return sse.error_event(error)
