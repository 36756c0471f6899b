"""A step model and a text pipeline as an ``LlmEngine`` in one process, without Ray.

One engine serves callers on any event loop, and plain threads: it runs on a loop of its own.
"""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import aclosing
from dataclasses import replace
from types import TracebackType
from typing import Any

from models.answer import Answer, token_request
from models.errors import Closed
from models.events import Event
from models.request import GenerateRequest, Prompt
from models.text.pipeline import TextPipeline
from models.time_left import TimeLeft
from models.token_engine import TokenEngine

_Deliver = Callable[[Event | BaseException | None], object]


class Scheduled:
    """``engine`` must be bound to a ``StepLoop``; close it, or use it as a context manager."""

    def __init__(self, name: str, engine: TokenEngine, text: TextPipeline) -> None:
        self.name = name
        self.max_context = engine.max_context
        self.engine = engine
        self.text = text
        self._closing = threading.Lock()  # nothing is started on a loop that is about to stop
        self._closed = False
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name=name, daemon=True)
        self._thread.start()

    async def generate(self, request: GenerateRequest) -> AsyncGenerator[Event, None]:
        """See ``LlmEngine.generate``. May be called from any event loop."""
        loop = asyncio.get_running_loop()
        events: asyncio.Queue[Event | BaseException | None] = asyncio.Queue()
        cancel = self._start(
            request, lambda item: loop.call_soon_threadsafe(events.put_nowait, item)
        )
        try:
            while (item := await events.get()) is not None:
                if isinstance(item, BaseException):
                    raise item
                yield item
        finally:
            cancel()

    def stream(self, request: GenerateRequest) -> Iterator[Event]:
        """The same events for a plain thread, which blocks until the next one is there."""
        events: queue.SimpleQueue[Event | BaseException | None] = queue.SimpleQueue()
        cancel = self._start(request, events.put)
        try:
            while (item := events.get()) is not None:
                if isinstance(item, BaseException):
                    raise item
                yield item
        finally:
            cancel()

    async def tokenize(self, prompt: Prompt, *, special_tokens: bool = True) -> tuple[int, ...]:
        """See ``Tokenizes.tokenize``."""
        return await asyncio.to_thread(self.text.tokenize, prompt, special_tokens=special_tokens)

    async def token_strings(self, token_ids: Sequence[int]) -> list[str]:
        """See ``Tokenizes.token_strings``."""
        return await asyncio.to_thread(self.text.token_strings, token_ids)

    async def tokenizer_info(self) -> Mapping[str, Any]:
        """See ``Tokenizes.tokenizer_info``."""
        return self.text.tokenizer_info()

    async def detokenize(self, token_ids: Sequence[int]) -> str:
        """See ``Tokenizes.detokenize``."""
        return await asyncio.to_thread(self.text.detokenize, token_ids)

    def close(self) -> None:
        """Fails what still runs, and ends the engine's threads."""
        with self._closing:
            if self._closed:
                return
            self._closed = True
        asyncio.run_coroutine_threadsafe(self._cancel_all(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
        self.engine.close()

    def __enter__(self) -> Scheduled:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _start(self, request: GenerateRequest, deliver: _Deliver) -> Callable[[], object]:
        """Runs a request on the engine's loop. ``deliver`` gets its events, then how it ended."""
        with self._closing:
            if self._closed:
                raise Closed
            running = asyncio.run_coroutine_threadsafe(self._answer(request, deliver), self._loop)
        running.add_done_callback(lambda ended: deliver(_ending(ended)))
        return running.cancel

    async def _answer(self, request: GenerateRequest, deliver: _Deliver) -> None:
        async with aclosing(self._events(request)) as events:
            async for event in events:
                deliver(event)

    async def _events(self, request: GenerateRequest) -> AsyncGenerator[Event, None]:
        left = TimeLeft(request.timeout_s)
        async with left.bounds():
            encoded = await asyncio.to_thread(self.text.encode, request)
        answer = Answer(self.text, encoded, request)
        tokens = replace(token_request(request, encoded), timeout_s=left.seconds())
        async with aclosing(self.engine.generate(tokens)) as items:
            async for item in items:
                for event in answer.events(item):
                    yield event
                for choice in answer.stopped():
                    self.engine.stop_choice(request.id, choice)
                if not answer.unfinished:
                    return

    async def _cancel_all(self) -> None:
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await asyncio.get_running_loop().shutdown_default_executor()


def _ending(ended: Future[None]) -> BaseException | None:
    return Closed() if ended.cancelled() else ended.exception()
