"""The graph as an ``LlmEngine``: Tokenizer, then one stream from Model, decoded here.

What is short is also encoded here.
"""

from __future__ import annotations

import asyncio
import contextvars
import logging
from collections.abc import AsyncGenerator, Coroutine, Mapping, Sequence
from contextlib import aclosing
from typing import Any, cast

from ray.serve.handle import DeploymentHandle

from deployments.calls import Stream, result_of, results_of_all
from deployments.encoding import encode, size_of
from deployments.lines.inlet import Inlet
from deployments.pump import started
from deployments.served import Description
from deployments.wire import Item
from models.answer import Answer, token_request
from models.errors import Invalid
from models.events import Event
from models.request import GenerateRequest, Prompt
from models.text.encoded import Encoded
from models.text.pipeline import TextPipeline
from models.time_left import TimeLeft
from models.tokens import Admitted, Tokens

logger = logging.getLogger("stepserve")

ENCODED_HERE = 6000  # characters, which take the loop a ms or two of English, 12 of the worst
LATE_END_S = 0.5  # of a model that should have ended an answer by itself; it may have begun late
STOP_TIMEOUT_S = 5.0  # after it a stream whose text has stopped is cancelled instead

Handle = DeploymentHandle[Any]
_Task = asyncio.Task[None]


class RemoteEngine:
    """One model's engine, in the ingress. ``max_context`` is 0 until ``describe`` was answered.

    ``guessed`` tells that ``text`` is the built-in one, of no meaning to an engine of text.
    """

    def __init__(
        self,
        name: str,
        tokenizer: Handle,
        model: Handle,
        text: TextPipeline,
        *,
        guessed: bool = False,
    ) -> None:
        self.name = name
        self.max_context = 0
        self._text = text
        self._guessed = guessed
        self._speaks: str | None = None
        self._background: set[_Task] = set()
        self._inlet = Inlet()
        # gRPC between replicas, whatever the environment says: three times the items a second.
        self._model = model.options(_by_reference=False)
        self._tokenizer = tokenizer.options(_by_reference=False)
        self._encode = self._tokenizer.options(method_name="encode")
        self._describe = self._model.options(method_name="describe")
        self._generate = self._model.options(method_name="generate", stream=True)

    async def describe(self) -> Description:
        """What a replica tells of its engine; waits until there is one."""
        description: Description = await result_of(self._describe.remote)
        self._speaks = description["speaks"]
        self.max_context = description["max_context"]
        return description

    async def ask_replicas(self, method: str, *args: Any, timeout_s: float) -> list[Any]:
        """What each replica returned, None for one that failed or took longer."""
        return await results_of_all(self._model, method, *args, timeout_s=timeout_s)

    def generate(self, request: GenerateRequest) -> AsyncGenerator[Event, None]:
        """See ``LlmEngine.generate``."""
        left = TimeLeft(request.timeout_s)
        if self._speaks is None:
            return self._once_described(request, left)
        return self._answer(request, left)

    async def tokenize(self, prompt: Prompt, *, special_tokens: bool = True) -> tuple[int, ...]:
        """See ``Tokenizes.tokenize``."""
        result: tuple[int, ...] = await self._ask_tokenizer("tokenize", prompt, special_tokens)
        return result

    async def token_strings(self, token_ids: Sequence[int]) -> list[str]:
        """See ``Tokenizes.token_strings``."""
        result: list[str] = await self._ask_tokenizer("token_strings", token_ids)
        return result

    async def tokenizer_info(self) -> Mapping[str, Any]:
        """See ``Tokenizes.tokenizer_info``."""
        result: Mapping[str, Any] = await self._ask_tokenizer("tokenizer_info")
        return result

    async def detokenize(self, token_ids: Sequence[int]) -> str:
        """See ``Tokenizes.detokenize``."""
        result: str = await self._ask_tokenizer("detokenize", token_ids)
        return result

    async def _ask_tokenizer(self, method: str, *args: Any) -> Any:
        await self._described()
        if self._speaks == "events" and self._guessed:
            raise Invalid(f"The tokenizer of the model '{self.name}' is not known.", "model")
        handle = self._tokenizer.options(method_name=method)
        return await result_of(lambda: handle.remote(*args))

    async def _described(self) -> None:
        if self._speaks is None:
            await self.describe()

    async def _once_described(
        self, request: GenerateRequest, left: TimeLeft
    ) -> AsyncGenerator[Event, None]:
        async with left.bounds():
            await self.describe()
        async with aclosing(self._answer(request, left)) as events:
            async for event in events:
                yield event

    def _answer(self, request: GenerateRequest, left: TimeLeft) -> AsyncGenerator[Event, None]:
        answer = self._from_events if self._speaks == "events" else self._from_tokens
        return answer(request, left)

    async def _from_events(
        self, request: GenerateRequest, left: TimeLeft
    ) -> AsyncGenerator[Event, None]:
        pump, _ = await started(self._generate.remote, request, self._inlet, left)
        try:
            while ready := await pump.next():
                for item in ready:
                    yield cast(Event, item)
        finally:
            pump.stop_reading().cancel()

    async def _from_tokens(
        self, request: GenerateRequest, left: TimeLeft
    ) -> AsyncGenerator[Event, None]:
        async with left.bounds():
            encoded = await self._encoded(request)
        answer = Answer(self._text, encoded, request)
        tokens = token_request(request, encoded)
        pump, asked = await started(self._generate.remote, tokens, self._inlet, left)
        stops: list[_Task] = []
        call_off = left.when_over(pump.give_up, late_s=LATE_END_S)
        try:
            while answer.unfinished and (ready := await pump.next()):
                events = [event for item in ready for event in answer.events(_token(item))]
                stops += [self._stop(asked.id, choice) for choice in answer.stopped()]
                for event in events:
                    yield event
            if pump.given_up:
                for event in answer.expire():
                    yield event
        finally:
            call_off()
            self._end(pump.stop_reading(), stops)

    async def _encoded(self, request: GenerateRequest) -> Encoded:
        """Here if it is short: that takes less than to ask for it."""
        if size_of(request) <= ENCODED_HERE:
            return encode(self._text, request, self.max_context)
        result: Encoded = await result_of(lambda: self._encode.remote(request, self.max_context))
        return result

    def _stop(self, request_id: str, choice: int) -> _Task:
        """Ends a choice whose text has stopped. No handle reaches one certain replica: tell all."""
        return self._spawn(self._tell_stop(request_id, choice))

    async def _tell_stop(self, request_id: str, choice: int) -> None:
        await self.ask_replicas("stop_choice", request_id, choice, timeout_s=STOP_TIMEOUT_S)

    def _end(self, stream: Stream, stops: Sequence[_Task]) -> None:
        """Cancels the stream; after the stops, so that those choices count as stopped."""
        if stops:
            self._spawn(_cancel_after(stops, stream))
        else:
            stream.cancel()

    def _spawn(self, work: Coroutine[Any, Any, None]) -> _Task:
        # In a context of its own: Serve cancels what it finds in a cancelled request's context.
        task = asyncio.get_running_loop().create_task(work, context=contextvars.Context())
        self._background.add(task)
        task.add_done_callback(self._background.discard)
        return task


async def _cancel_after(stops: Sequence[_Task], stream: Stream) -> None:
    try:
        for result in await asyncio.gather(*stops, return_exceptions=True):
            if isinstance(result, Exception):
                logger.warning("a stop did not reach the model: %s", type(result).__name__)
    finally:
        stream.cancel()


def _token(item: Item) -> Admitted | Tokens:
    assert isinstance(item, Admitted | Tokens)
    return item
