"""The Model deployment: one engine a replica, its steps batched by ``@serve.batch``.

Knows nothing of HTTP, and of text only what an engine with its own scheduler makes of it. Failures
are values on the stream: an exception would cross the hop as a remote traceback.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

from ray import serve

from configs.settings import ModelSettings
from deployments.ray_metrics import RaySink
from deployments.step_gate import StepGate
from deployments.wire import Item, Packed, pack
from models.engine import LlmEngine
from models.errors import EngineError, Failed
from models.metrics import LlmMetrics, Sample
from models.request import GenerateRequest
from models.token_engine import Admitted, TokenEngine, TokenRequest

logger = logging.getLogger("stepserve")

Description = dict[str, Any]


class Model:
    """Serves what ``settings`` names; the engine is imported and loaded here, in the replica."""

    async def __init__(self, settings: ModelSettings) -> None:  # type: ignore[misc]
        from models.build import ServedSteps, build_model

        self._settings = settings
        self._metrics = LlmMetrics(settings.name, [RaySink(settings.name)])
        built = await asyncio.to_thread(build_model, settings, self._metrics)
        self._served: _Tokens | _Texts
        if isinstance(built, ServedSteps):
            engine = built.engine(StepGate(built.stepper.step))
            self._served = _Tokens(engine, built.model.describe())
        else:
            self._served = _Texts(built)

    async def generate_tokens(self, request: TokenRequest) -> AsyncGenerator[list[Packed], None]:
        """Token ids in, tokens out: all that is ready, the first ones at once."""
        assert isinstance(self._served, _Tokens)
        async for ready in _packed(self._served.generate(request)):
            yield ready

    async def generate_events(self, request: GenerateRequest) -> AsyncGenerator[list[Packed], None]:
        """Text in, events out, for an engine with its own scheduler."""
        assert isinstance(self._served, _Texts)
        async for ready in _packed(self._served.generate(request)):
            yield ready

    async def stop_choice(self, request_id: str, choice: int) -> None:
        """A stop matched in a choice's text. Told to every replica: most know no such request."""
        self._served.stop_choice(request_id, choice)

    async def describe(self) -> Description:
        """What callers must know of the engine, what people want to, and what is wrong with it."""
        return {**self._served.describe(), "problem": self._problem()}

    async def metrics_samples(self) -> tuple[str, list[Sample]]:
        """This replica's id and all that it measured."""
        self._served.observe()
        return serve.get_replica_context().replica_id.unique_id, self._metrics.samples()

    async def check_health(self) -> None:
        """Raises after a failed step or a stall, so that Serve replaces this replica."""
        if problem := self._problem():
            raise RuntimeError(problem)

    def _problem(self) -> str:
        return self._served.problem(self._settings.engine.stall_timeout_s)


class _Tokens:
    """An engine over steps."""

    def __init__(self, engine: TokenEngine, description: dict[str, str]) -> None:
        self._engine = engine
        self._description = description

    def generate(self, request: TokenRequest) -> AsyncGenerator[Item, None]:
        return self._engine.generate(request)

    def stop_choice(self, request_id: str, choice: int) -> None:
        self._engine.stop_choice(request_id, choice)

    def observe(self) -> None:
        self._engine.observe()

    def describe(self) -> Description:
        return {"speaks": "tokens", "max_context": self._engine.max_context, **self._description}

    def problem(self, stall_timeout_s: float) -> str:
        stepper = self._engine.stepper
        if stepper.failure:
            return f"a step failed: {stepper.failure}"
        return _stall(stepper.live, stepper.last_progress, stall_timeout_s)


class _Texts:
    """An engine with its own scheduler."""

    def __init__(self, engine: LlmEngine) -> None:
        self._engine = engine
        self._live = 0
        self._last_progress = time.monotonic()

    async def generate(self, request: GenerateRequest) -> AsyncGenerator[Item, None]:
        if not self._live:
            self._last_progress = time.monotonic()
        self._live += 1
        try:
            async with aclosing(self._engine.generate(request)) as events:
                async for event in events:
                    self._last_progress = time.monotonic()
                    yield event
        except EngineError:
            raise
        except Exception as error:  # not our code: whatever it raises fails this request only
            logger.exception("the engine failed")
            raise Failed(f"The engine failed: {type(error).__name__}: {error}") from error
        finally:
            self._live -= 1

    def stop_choice(self, request_id: str, choice: int) -> None:
        """Such an engine matches stops by itself."""

    def observe(self) -> None:
        """Such an engine measures by itself."""

    def describe(self) -> Description:
        return {"speaks": "events", "max_context": self._engine.max_context}

    def problem(self, stall_timeout_s: float) -> str:
        return _stall(self._live, self._last_progress, stall_timeout_s)


def _stall(live: int, last_progress: float, timeout_s: float) -> str:
    silent = time.monotonic() - last_progress
    return f"no progress for {silent:.0f} s with {live} live" if live and silent > timeout_s else ""


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
