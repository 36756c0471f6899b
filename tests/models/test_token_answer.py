"""How an answer goes on and ends: choices, stops, timeouts, readers who are slow or leave."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from dataclasses import replace

import pytest

from models.errors import TimedOut
from models.events import FinishReason
from models.tokens import Tokens
from tests.models.asking import ask, assert_nothing_held, collect, serving
from tests.models.counted import counted
from tests.models.recall import expected, recall_model


@pytest.mark.parametrize("ahead", [False, True])
async def test_a_stop_id_ends_the_answer_and_is_reported(ahead: bool) -> None:
    tokens = expected([5, 6], 1, 20)
    stop = tokens[7]
    upto = tokens.index(stop)
    async with serving(recall_model(launch_ahead=ahead)) as engine:
        answered = await collect(engine, ask([5, 6], 20, seed=1, stop_ids=frozenset({stop})))
    assert answered.tokens.get(0, []) == tokens[:upto]
    assert answered.finishes[0].finish is FinishReason.STOP
    assert answered.finishes[0].stop_id == stop


async def test_choices_share_one_prefill() -> None:
    prompt = list(range(33))
    model = recall_model()
    async with serving(model, step_tokens=64) as engine:
        answered = await collect(engine, ask(prompt, 4, seed=10, n=4))
        assert counted(engine, "prefix_cache_hits") == 96
    assert answered.tokens == {choice: expected(prompt, 10 + choice, 4) for choice in range(4)}


async def test_one_choice_can_be_stopped_alone() -> None:
    async with serving(recall_model(seconds=0.001)) as engine:
        request = ask([1, 2, 3], 40, n=2, name="pair")
        ended: dict[int, int] = {}
        counts = [0, 0]
        async with aclosing(engine.generate(request)) as items:
            async for item in items:
                if isinstance(item, Tokens):
                    counts[item.choice] += len(item.token_ids)
                    engine.stop_choice("pair", 0)
                    if item.finish:
                        ended[item.choice] = counts[item.choice]
        engine.stop_choice("pair", 0)
    assert ended[0] < 40
    assert ended[1] == 40


@pytest.mark.parametrize("ahead", [False, True])
async def test_closing_frees_everything_at_once(ahead: bool) -> None:
    model = recall_model(slots=2, launch_ahead=ahead, seconds=0.002)
    async with serving(model) as engine:
        waiting = asyncio.create_task(collect(engine, ask([9], 50)))
        async with aclosing(engine.generate(ask([1, 2, 3], 50, n=2))) as items:
            await anext(items)
            await anext(items)
        assert engine.admission.running <= 1
        assert engine.stepper.pool.used <= engine.stepper.pool.needed(51)
        waiting.cancel()
        await asyncio.wait([waiting])
        assert_nothing_held(engine)


async def test_a_slow_reader_does_not_hold_up_the_steps() -> None:
    async with serving(recall_model()) as engine:
        slow = engine.generate(ask([1, 2], 30))
        await anext(slow)
        answered = await collect(engine, ask([3, 4], 30))
        assert len(answered.tokens[0]) == 30
        for _ in range(50):
            await asyncio.sleep(0.002)
            if not engine.stepper.live:
                break
        rest = [item async for item in slow]
        assert isinstance(rest[-1], Tokens)
        assert rest[-1].finish is FinishReason.LENGTH
        assert len(rest) <= 2


async def test_finishes_are_counted_by_reason() -> None:
    async with serving(recall_model(seconds=0.001)) as engine:
        await collect(engine, ask([1], 3))
        async with aclosing(engine.generate(ask([2], 50))) as items:
            await anext(items)
        async with aclosing(engine.generate(ask([2], 50, name="text"))) as items:
            await anext(items)
            engine.stop_choice("text", 0)
        finished = {
            reason: counted(engine, "requests_finished", reason=reason)
            for reason in ("length", "cancelled", "stop")
        }
    assert finished == {"length": 1, "cancelled": 1, "stop": 1}


async def test_a_timeout_ends_a_begun_answer_by_length() -> None:
    async with serving(recall_model(seconds=0.02)) as engine:
        answered = await collect(engine, ask([1, 2], 60, timeout_s=0.4))
    assert answered.finishes[0].finish is FinishReason.LENGTH
    assert 0 < len(answered.tokens[0]) < 60
    assert answered.tokens[0] == expected([1, 2], 0, 60)[: len(answered.tokens[0])]


async def test_a_timeout_before_the_first_token_is_an_error() -> None:
    """In the queue, and in the middle of a prompt."""
    async with serving(recall_model(slots=1, seconds=0.01), step_tokens=1) as engine:
        running = asyncio.create_task(collect(engine, ask([1] * 20, 2)))
        await asyncio.sleep(0)
        with pytest.raises(TimedOut):
            await collect(engine, ask([2], 2, timeout_s=0.02))
        assert engine.admission.waiting == 0
        assert (await running).tokens[0] == expected([1] * 20, 0, 2)
        with pytest.raises(TimedOut):
            await collect(engine, ask([3] * 50, 2, timeout_s=0.03))
        assert_nothing_held(engine)


async def test_a_timeout_counts_from_the_first_token_of_any_choice() -> None:
    async with serving(recall_model(slots=1, seconds=0.02)) as engine:
        answered = await collect(engine, ask([1, 2], 60, n=2, timeout_s=0.4))
    assert [answered.finishes[i].finish for i in range(2)] == [FinishReason.LENGTH] * 2
    assert answered.tokens[1] == []


async def test_prompts_of_another_salt_are_computed_anew() -> None:
    prompt = list(range(40))
    cached = []
    async with serving(recall_model(), step_tokens=64) as engine:
        for salt in ("", "a", "b", "a", ""):
            answered = await collect(engine, replace(ask(prompt, 4, seed=3), cache_salt=salt))
            assert answered.tokens[0] == expected(prompt, 3, 4)
            assert answered.admitted is not None
            cached.append(answered.admitted.cached_tokens > 0)
    assert cached == [False, False, False, True, True]
