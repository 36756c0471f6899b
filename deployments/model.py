"""The Model deployment: one engine a replica, its steps batched by ``@serve.batch``.

Knows nothing of HTTP, and of text only what an engine with its own scheduler makes of it. Failures
are values on the stream: an exception would cross the hop as a remote traceback.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from functools import partial
from typing import Any

from ray import serve

from configs.settings import ModelSettings
from deployments.lines.carry import carried
from deployments.lines.host import line_host
from deployments.lines.outlet import Outlet, Reader
from deployments.logs import show_logs
from deployments.ray_metrics import RaySink
from deployments.served import Description, ServedEvents, ServedTokens
from deployments.step_gate import StepGate
from deployments.wire import Item, Packed, pack
from models.build import ServedSteps, build_model, metrics_of
from models.errors import EngineError
from models.metrics import Sample
from models.tokens import Admitted


class Model:
    """Serves what ``settings`` names; torch is imported and weights are loaded in the replica.

    ``sharing`` is how many models of the graph take KV blocks of a CPU's memory.
    """

    async def __init__(self, settings: ModelSettings, sharing: int) -> None:  # type: ignore[misc]
        show_logs()
        self._stall_timeout_s = settings.engine.stall_timeout_s
        self._metrics = metrics_of(settings, lambda name: [RaySink(name)])
        # On a thread: the replica goes on answering Serve while a large model loads.
        built = await asyncio.to_thread(build_model, settings, self._metrics, sharing)
        self._served: ServedTokens | ServedEvents
        if isinstance(built, ServedSteps):
            self._served = ServedTokens(built.engine(StepGate(built.stepper.step)))
        else:
            self._served = ServedEvents(built, self._metrics)
        self._outlet = Outlet()
        await self._outlet.open(line_host())

    async def generate(
        self, request: Any, reader: Reader | None = None
    ) -> AsyncGenerator[list[Packed], None]:
        """All that is ready of an answer, the first items at once.

        ``request`` is a ``TokenRequest``, answered with tokens, or a ``GenerateRequest``, answered
        with events: ``describe`` tells what the engine ``speaks``. The items come by the line to
        ``reader`` if there is one, else by this stream, which tells of the outlet.
        """
        served, line = self._served, self._outlet.line_to(reader)
        if reader is not None and line is not None:
            yield await carried(line, reader.number, partial(served.deliver, request))
            return
        if reader is not None and self._outlet.address is not None:
            yield [("outlet", *self._outlet.address)]
        async with aclosing(_packed(served.generate(request))) as stream:
            async for ready in stream:
                yield ready

    async def stop_choice(self, request_id: str, choice: int) -> None:
        """A stop matched in a choice's text. Told to every replica: most know no such request."""
        self._served.stop_choice(request_id, choice)

    async def reset_prefix_cache(self) -> list[int]:
        """How many KV blocks it held; an engine with a scheduler of its own tells of none."""
        return self._served.reset_prefix_cache()

    async def describe(self) -> Description:
        """What callers must know of the engine, what people want to, and what is wrong with it."""
        problem = self._served.problem(self._stall_timeout_s)
        return {**self._served.describe(), "problem": problem}

    async def metrics_samples(self) -> tuple[str, list[Sample]]:
        """This replica's id and all that it measured."""
        self._served.observe()
        return serve.get_replica_context().replica_id.unique_id, self._metrics.samples()

    async def record_autoscaling_stats(self) -> dict[str, float]:
        """For ``ByWork``; Serve asks where replicas are scaled automatically."""
        return self._served.demand()

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
