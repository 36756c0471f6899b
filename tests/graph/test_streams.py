"""Answers through the whole graph on a real Ray."""

from __future__ import annotations

import asyncio
from contextlib import aclosing

import httpx
import pytest

from models.errors import Busy, Invalid, TooLong
from models.events import Finished, FinishReason, Started, Text
from models.request import GenerateRequest, TokenPrompt
from tests.graph.asking import (
    answer_to,
    ask,
    events_of,
    finishes,
    measured,
    text_of,
    until_idle,
)
from tests.graph.conftest import RunningGraph

pytestmark = [pytest.mark.slow, pytest.mark.asyncio(loop_scope="session")]


async def test_an_answer_crosses_the_graph_token_by_token(graph: RunningGraph) -> None:
    engine = graph.engine("recall")
    events = await events_of(engine, ask("hello", 40))
    assert isinstance(events[0], Started)
    assert text_of(events) == answer_to("hello", 40)
    assert finishes(events)[0].reason is FinishReason.LENGTH
    assert finishes(events)[0].usage.completion_tokens == 40
    assert sum(isinstance(event, Text) for event in events) > 10


async def test_choices_share_one_stream(graph: RunningGraph) -> None:
    events = await events_of(graph.engine("recall"), ask("choices", 20, n=3))
    for choice in range(3):
        assert text_of(events, choice) == answer_to("choices", 20, seed=1 + choice)
    assert set(finishes(events)) == {0, 1, 2}


async def test_a_reader_that_comes_back_late_finds_all_that_is_ready(graph: RunningGraph) -> None:
    engine = graph.engine("recall")
    async with aclosing(engine.generate(ask("late", 60))) as events:
        assert isinstance(await anext(events), Started)
        assert isinstance(await anext(events), Text)
        await asyncio.sleep(0.5)
        assert (await measured(engine))["stepserve_requests_running"] == 0
        rest = [event async for event in events]
    assert [type(event) for event in rest] == [Text, Finished]


async def test_mistakes_are_values_that_keep_their_type(graph: RunningGraph) -> None:
    engine = graph.engine("recall")
    with pytest.raises(TooLong) as long:
        await events_of(engine, ask("x" * 600))
    assert (long.value.prompt_tokens, long.value.max_context) == (600, 512)
    with pytest.raises(Invalid):
        await events_of(engine, GenerateRequest(id="odd", prompt=TokenPrompt((10_000,))))


async def test_the_largest_body_crosses_the_hops(graph: RunningGraph) -> None:
    with pytest.raises(TooLong) as long:
        await events_of(graph.engine("recall"), ask("é" * 1_750_000))
    assert long.value.prompt_tokens == 3_500_000


async def test_a_full_model_says_busy_and_when_to_come_back(graph: RunningGraph) -> None:
    engine = graph.engine("fragile")
    answers = await asyncio.gather(
        *(events_of(engine, ask("full", 20)) for _ in range(6)), return_exceptions=True
    )
    busy = [answer for answer in answers if isinstance(answer, Busy)]
    assert len(busy) == 3
    assert all(error.retry_after >= 1 for error in busy)
    await until_idle(engine)


async def test_readiness_and_metrics_are_served_over_all_models(graph: RunningGraph) -> None:
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{graph.port}") as client:
        ready = await client.get("/ready")
        metrics = (await client.get("/metrics")).text
    assert ready.status_code == 200, ready.text
    assert set(ready.json()["models"]) == {"recall", "fragile", "crash", "vectors"}
    for model in ("recall", "fragile", "crash", "vectors"):
        assert f'stepserve_replicas_scraped{{model="{model}"}} 1.0' in metrics
    assert 'stepserve_kv_blocks{model="recall"} 1024.0' in metrics
