"""The two kinds of engines that a Model replica serves, behind one interface."""

from __future__ import annotations

import logging
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any

from deployments.wire import Item
from models.engine import LlmEngine
from models.errors import EngineError, Failed, Invalid
from models.events import Event, Finished, FinishReason, Reasoning, Started, Text, ToolCall
from models.metrics import LlmMetrics
from models.request import GenerateRequest
from models.token_engine import TokenEngine
from models.tokens import TokenRequest

logger = logging.getLogger("stepserve")

CRASHES = 3  # in a row, after which an engine of somebody else's is taken for broken

Description = dict[str, Any]


class Demand:
    """What is asked of an engine, between one look and the next."""

    def __init__(self, engine: TokenEngine) -> None:
        self._engine = engine
        self._looked = time.monotonic()
        self._ended = 0

    def told(self) -> dict[str, float]:
        """``load``, of 1 that it can do, and ``waiting_s``: how long what waits would take it."""
        admission, work = self._engine.admission, self._engine.stepper.work
        now = time.monotonic()
        ended, self._ended = admission.ended - self._ended, admission.ended
        elapsed_s, self._looked = max(now - self._looked, 1e-3), now
        load = work.take(admission.max_running, ended) / elapsed_s
        return {"load": load, "waiting_s": admission.waiting * work.usual(admission.running)}


class ServedTokens:
    """An engine over steps: token ids in, token ids out."""

    def __init__(self, engine: TokenEngine) -> None:
        self._engine = engine
        self._description = engine.stepper.model.describe()
        self._demand = Demand(engine)

    def generate(self, request: TokenRequest) -> AsyncGenerator[Item, None]:
        return self._engine.generate(request)

    async def deliver(self, request: TokenRequest, take: Callable[[Item], None]) -> None:
        """As ``generate``, but hands each item over as soon as it is there."""
        await self._engine.deliver(request, take)

    def stop_choice(self, request_id: str, choice: int) -> None:
        self._engine.stop_choice(request_id, choice)

    def reset_prefix_cache(self) -> list[int]:
        return [self._engine.stepper.pool.forget()]

    def observe(self) -> None:
        self._engine.observe()

    def demand(self) -> dict[str, float]:
        """Since the last call, for autoscaling."""
        return self._demand.told()

    def describe(self) -> Description:
        return {"speaks": "tokens", "max_context": self._engine.max_context, **self._description}

    def problem(self, stall_timeout_s: float) -> str:
        failure = self._engine.stepper.failure
        return f"a step failed: {failure}" if failure else self._stall(stall_timeout_s)

    def abandon_stalled(self, stall_timeout_s: float) -> None:
        """Answers those who wait for a step that does not end: this replica is given up."""
        if stall := self._stall(stall_timeout_s):
            self._engine.abandon(f"The model has stalled: {stall}.")

    def _stall(self, timeout_s: float) -> str:
        stepper = self._engine.stepper
        return stall(stepper.live, stepper.last_progress, timeout_s)


class ServedEvents:
    """An engine with its own scheduler: text in, events out. It matches stops by itself."""

    def __init__(self, engine: LlmEngine, metrics: LlmMetrics) -> None:
        self._engine = engine
        self._metrics = metrics
        self._live = 0
        self._crashes = 0  # in a row
        self._last_progress = time.monotonic()

    async def generate(self, request: GenerateRequest) -> AsyncGenerator[Event, None]:
        self._check(request)
        if not self._live:
            self._last_progress = time.monotonic()
        self._live += 1
        watch = _Watch(self._metrics)
        try:
            async with aclosing(self._engine.generate(request)) as events:
                async for event in events:
                    self._last_progress = time.monotonic()
                    self._crashes = 0
                    watch.see(event)
                    yield event
        except EngineError:
            watch.reason = FinishReason.ERROR
            raise
        except Exception as error:  # not our code: whatever it raises fails this request only
            watch.reason = FinishReason.ERROR
            self._crashes += 1
            logger.exception("the engine failed")
            raise Failed(f"The engine failed: {type(error).__name__}: {error}") from error
        finally:
            self._live -= 1
            watch.close()

    async def deliver(self, request: GenerateRequest, take: Callable[[Item], None]) -> None:
        """As ``generate``, but hands each item over as soon as it is there."""
        async with aclosing(self.generate(request)) as events:
            async for event in events:
                take(event)

    def stop_choice(self, request_id: str, choice: int) -> None:
        pass

    def abandon_stalled(self, stall_timeout_s: float) -> None:
        """Such an engine may still answer; whoever waits for it has a bound of its own."""

    def reset_prefix_cache(self) -> list[int]:
        """What such an engine keeps is its own affair."""
        return []

    def observe(self) -> None:
        self._metrics.state(running=self._live, waiting=0, blocks_used=0, blocks=0)

    def demand(self) -> dict[str, float]:
        """Such an engine tells of none."""
        return {}

    def describe(self) -> Description:
        return {"speaks": "events", "max_context": self._engine.max_context}

    def problem(self, stall_timeout_s: float) -> str:
        if self._crashes >= CRASHES:
            return f"the engine failed {self._crashes} times in a row"
        return stall(self._live, self._last_progress, stall_timeout_s)

    def _check(self, request: GenerateRequest) -> None:
        if getattr(self._engine, "follows_grammars", False):
            return
        if request.grammar:
            raise Invalid("This model follows no grammars.", request.grammar.param)
        if request.tool_choice.mode == "required":
            raise Invalid("This model cannot be made to call a function.", "tool_choice")


@dataclass(slots=True)
class _Watch:
    """Measures one request by its events."""

    metrics: LlmMetrics
    reason: FinishReason = FinishReason.CANCELLED
    prompt_tokens: int = 0
    completion_tokens: int = 0
    began: float = field(default_factory=time.monotonic)
    first_token_s: float | None = None

    def see(self, event: Event) -> None:
        match event:
            case Started(prompt_tokens, _):
                self.prompt_tokens = prompt_tokens
            case Text() | Reasoning() | ToolCall() if self.first_token_s is None:
                self.first_token_s = time.monotonic() - self.began
            case Finished(reason, usage):
                self.reason = reason
                self.completion_tokens += usage.completion_tokens
                self.metrics.generated(usage.completion_tokens)

    def close(self) -> None:
        self.metrics.request_finished(
            self.reason,
            prompt_tokens=self.prompt_tokens,
            completion_tokens=self.completion_tokens,
            queue_s=None,
            first_token_s=self.first_token_s,
            total_s=time.monotonic() - self.began,
        )


def stall(live: int, last_progress: float, timeout_s: float) -> str:
    """What is wrong if work has made no progress for so long; else empty."""
    silent = time.monotonic() - last_progress
    return f"no progress for {silent:.0f} s with {live} live" if live and silent > timeout_s else ""
