"""Tokens that are handed on several at a time: how many, and that none is lost or late."""

from __future__ import annotations

import asyncio
from contextlib import aclosing

import pytest

from configs.settings import ModelSettings
from models.build import build_model, build_scheduled
from models.errors import Failed
from models.events import FinishReason, Text
from models.gathering import Gathering
from models.metrics import LlmMetrics
from models.request import GenerateRequest, SamplingParams, TextPrompt
from models.schedule.sequence import Scores
from models.tokens import Admitted, Tokens
from tests.models.asking import ask, collect, serving
from tests.models.recall import expected, recall_model


async def items_of(interval: int, count: int, n: int = 1) -> list[Tokens]:
    items: list[Admitted | Tokens] = []
    async with serving(recall_model(), stream_interval=interval) as engine:
        await engine.deliver(ask([1, 2, 3], count, seed=5, n=n), items.append)
    first, *rest = items
    assert first == Admitted(3, 0)
    return [item for item in rest if isinstance(item, Tokens)]


async def test_the_first_comes_at_once_and_the_others_together() -> None:
    items = await items_of(4, 15)
    assert [len(item.token_ids) for item in items] == [1, 4, 4, 4, 2]
    assert [token for item in items for token in item.token_ids] == expected([1, 2, 3], 5, 15)
    assert [item.finish for item in items] == [None] * 4 + [FinishReason.LENGTH]


async def test_each_choice_has_its_own() -> None:
    items = await items_of(8, 10, n=3)
    for choice in range(3):
        own = [item for item in items if item.choice == choice]
        assert [len(item.token_ids) for item in own] == [1, 8, 1]
        told = [token for item in own for token in item.token_ids]
        assert told == expected([1, 2, 3], 5 + choice, 10)


async def test_what_is_held_comes_before_a_timeout_ends_the_answer() -> None:
    async with serving(recall_model(seconds=0.02), stream_interval=50) as engine:
        answered = await collect(engine, ask([1, 2], 60, timeout_s=0.4))
    assert answered.finishes[0].finish is FinishReason.LENGTH
    assert 1 < len(answered.tokens[0]) < 60
    assert answered.tokens[0] == expected([1, 2], 0, 60)[: len(answered.tokens[0])]


async def test_scores_come_with_their_tokens() -> None:
    async with serving(recall_model(), stream_interval=3) as engine:
        together = await collect(engine, ask([1, 2, 3], 7, scored=True))
    async with serving(recall_model()) as engine:
        single = await collect(engine, ask([1, 2, 3], 7, scored=True))
    assert len(together.scores[0]) == 7
    assert (together.tokens, together.scores) == (single.tokens, single.scores)


async def test_stopping_a_choice_lets_go_of_what_is_held() -> None:
    async with (
        serving(recall_model(seconds=0.002), stream_interval=1000) as engine,
        aclosing(engine.generate(ask([1, 2, 3], 60, name="long"))) as items,
    ):
        await anext(items)
        await anext(items)
        await asyncio.sleep(0.05)
        engine.stop_choice("long", 0)
        (rest,) = [item async for item in items]
    assert isinstance(rest, Tokens)
    assert rest.finish is FinishReason.STOP
    assert 0 < len(rest.token_ids) < 59


def test_what_is_held_goes_before_an_error() -> None:
    gathering = Gathering(4, 2)
    assert gathering.take(Tokens(1, (7,))) == [Tokens(1, (7,))]
    assert gathering.take(Tokens(1, (8,), scores=(Scores(-1.0, 1),))) == []
    error = Failed("over")
    assert gathering.take(error) == [Tokens(1, (8,), scores=(Scores(-1.0, 1),)), error]
    assert gathering.take(error) == [error]


def test_a_burst_of_tokens_counts_each() -> None:
    gathering = Gathering(4, 1)
    gathering.take(Tokens(0, (1,)))
    assert gathering.take(Tokens(0, (2, 3, 4))) == []
    assert gathering.take(Tokens(0, (5, 6))) == [Tokens(0, (2, 3, 4, 5, 6))]


async def test_a_setting_makes_it_so() -> None:
    settings = ModelSettings.model_validate(
        {
            "name": "counting",
            "factory": "tests.models.counting:Counting",
            "engine": {"stream_interval": 8},
        }
    )
    sampling = SamplingParams(max_tokens=33, temperature=0)
    with build_scheduled(settings) as engine:
        request = GenerateRequest(id="1", prompt=TextPrompt("@"), sampling=sampling)
        deltas = [e.delta async for e in engine.generate(request) if isinstance(e, Text)]
    assert "".join(deltas) == "".join(map(chr, range(65, 98)))
    assert [len(delta) for delta in deltas] == [1, 8, 8, 8, 8]


def test_an_engine_with_its_own_scheduler_refuses_it() -> None:
    settings = ModelSettings.model_validate(
        {
            "name": "mock",
            "factory": "models.mock:MockEngine",
            "factory_args": {"name": "mock"},
            "engine": {"stream_interval": 2},
        }
    )
    with pytest.raises(ValueError, match="stream_interval"):
        build_model(settings, LlmMetrics("mock"))
