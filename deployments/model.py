"""The Model deployment: one engine a replica, its steps batched by ``@serve.batch``.

Knows nothing of HTTP, and of text only what an engine with its own scheduler makes of it. Failures
are values on the stream: an exception would cross the hop as a remote traceback.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing

from ray import serve

from configs.settings import ModelSettings
from deployments.logs import show_logs
from deployments.ray_metrics import RaySink
from deployments.served import Description, ServedEvents, ServedTokens
from deployments.step_gate import StepGate
from deployments.wire import Item, Packed, pack
from models.build import ServedSteps, build_model
from models.errors import EngineError
from models.metrics import LlmMetrics, Sample
from models.request import GenerateRequest
from models.token_engine import Admitted, TokenRequest


class Model:
    """Serves what ``settings`` names; torch is imported and weights are loaded in the replica."""

    async def __init__(self, settings: ModelSettings) -> None:  # type: ignore[misc]
        show_logs()
        self._stall_timeout_s = settings.engine.stall_timeout_s
        self._metrics = LlmMetrics(settings.name, [RaySink(settings.name)])
        # On a thread: the replica goes on answering Serve while a large model loads.
        built = await asyncio.to_thread(build_model, settings, self._metrics)
        self._served: ServedTokens | ServedEvents
        if isinstance(built, ServedSteps):
            self._served = ServedTokens(built.engine(StepGate(built.stepper.step)))
        else:
            self._served = ServedEvents(built, self._metrics)

    async def generate_tokens(self, request: TokenRequest) -> AsyncGenerator[list[Packed], None]:
        """Token ids in, tokens out: all that is ready, the first ones at once."""
        assert isinstance(self._served, ServedTokens)
        async with aclosing(_packed(self._served.generate(request))) as stream:
            async for ready in stream:
                yield ready

    async def generate_events(self, request: GenerateRequest) -> AsyncGenerator[list[Packed], None]:
        """Text in, events out, for an engine with its own scheduler."""
        assert isinstance(self._served, ServedEvents)
        async with aclosing(_packed(self._served.generate(request))) as stream:
            async for ready in stream:
                yield ready

    async def stop_choice(self, request_id: str, choice: int) -> None:
        """A stop matched in a choice's text. Told to every replica: most know no such request."""
        self._served.stop_choice(request_id, choice)

    async def describe(self) -> Description:
        """What callers must know of the engine, what people want to, and what is wrong with it."""
        problem = self._served.problem(self._stall_timeout_s)
        return {**self._served.describe(), "problem": problem}

    async def metrics_samples(self) -> tuple[str, list[Sample]]:
        """This replica's id and all that it measured."""
        self._served.observe()
        return serve.get_replica_context().replica_id.unique_id, self._metrics.samples()

    async def check_health(self) -> None:
        """Raises after a failed step or a stall, so that Serve replaces this replica."""
        self._served.observe()  # Ray forgets gauges that are not set again
        self._served.abandon_stalled(self._stall_timeout_s)
        if problem := self._served.problem(self._stall_timeout_s):
            raise RuntimeError(problem)


async def _packed(items: AsyncGenerator[Item, None]) -> AsyncGenerator[list[Packed], None]:
    """``Admitted`` goes together with the tokens right behind it; an error ends the stream."""
    held: list[Packed] = []
    try:
        async with aclosing(items):
            async for item in items:
                held.append(pack(item))
                if not isinstance(item, Admitted):
                    yield held
                    held = []
    except EngineError as error:
        yield [*held, pack(error)]
