"""Asking a graph in tests: requests, their events, and what its replicas measure."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from uuid import uuid4

from deployments.graph import Replicas
from deployments.remote import RemoteEngine
from models.errors import EngineError
from models.events import Event, Finished, Text
from models.request import GenerateRequest, SamplingParams, TextPrompt
from tests.models.recall import expected

PATIENCE_S = 30.0


def ask(
    prompt: str = "hello", count: int = 8, *, n: int = 1, stop: Sequence[str] = (), seed: int = 1
) -> GenerateRequest:
    return GenerateRequest(
        id=uuid4().hex,
        prompt=TextPrompt(prompt),
        sampling=SamplingParams(max_tokens=count, seed=seed),
        stop=tuple(stop),
        n=n,
    )


def answer_to(prompt: str, count: int, seed: int = 1) -> str:
    return bytes(expected(list(prompt.encode()), seed, count)).decode()


async def events_of(engine: RemoteEngine, request: GenerateRequest) -> list[Event]:
    async with aclosing(engine.generate(request)) as events:
        return [event async for event in events]


async def drain(events: AsyncGenerator[Event, None]) -> None:
    async for _ in events:
        pass


def text_of(events: Sequence[Event], choice: int = 0) -> str:
    return "".join(e.delta for e in events if isinstance(e, Text) and e.choice == choice)


def finishes(events: Sequence[Event]) -> dict[int, Finished]:
    return {event.choice: event for event in events if isinstance(event, Finished)}


async def measured(engine: Replicas) -> dict[str, float]:
    """Sums over the replicas, of counters by reason too."""
    totals: dict[str, float] = {}
    for answer in await engine.ask_replicas("metrics_samples", timeout_s=PATIENCE_S):
        for name, labels, value in answer[1]:
            key = "/".join([name, *(value for key, value in labels if key == "reason")])
            totals[key] = totals.get(key, 0) + value
    return totals


async def until_idle(engine: RemoteEngine) -> dict[str, float]:
    """Waits until nothing runs, waits or holds blocks."""
    deadline = time.monotonic() + PATIENCE_S
    gauges = ("requests_running", "requests_waiting", "kv_blocks_used")
    while True:
        seen = await measured(engine)
        held = {name: seen[f"stepserve_{name}"] for name in gauges}
        if not any(held.values()):
            return seen
        assert time.monotonic() < deadline, held
        await asyncio.sleep(0.01)


async def until_well(engine: RemoteEngine, prompt: str) -> list[Event]:
    """Asks until a replica answers: while one is being replaced, errors are what is right."""
    deadline = time.monotonic() + 60
    while True:
        try:
            return await asyncio.wait_for(events_of(engine, ask(prompt)), 60)
        except EngineError:
            assert time.monotonic() < deadline
            await asyncio.sleep(0.2)


async def until_replaced(engine: Replicas) -> None:
    """Waits until there are replicas, and nothing is wrong with any."""
    deadline = time.monotonic() + 90
    while True:
        states = await engine.ask_replicas("describe", timeout_s=PATIENCE_S)
        if states and all(state and not state["problem"] for state in states):
            return
        assert time.monotonic() < deadline, states
        await asyncio.sleep(0.5)
