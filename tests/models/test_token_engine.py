"""The engine under random arrivals, a tiny pool, forced preemption and cancellation."""

from __future__ import annotations

import asyncio
import random
import threading
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest

from models.constrain.grammars import Grammars
from models.errors import Busy, Closed, Failed, Invalid, TimedOut, TooLong
from models.events import FinishReason
from models.metrics import LlmMetrics
from models.request import Grammar, User
from models.stepper import Stepper
from models.text.loading import byte_pipeline
from models.text.pipeline import Vocabulary
from models.tokens import Admitted
from tests.models.asking import ask, collect, serving
from tests.models.counted import counted
from tests.models.recall import RecallModel, expected, recall_model


@pytest.mark.parametrize("ahead", [False, True])
async def test_one_request(ahead: bool) -> None:
    async with serving(recall_model(launch_ahead=ahead)) as engine:
        answered = await collect(engine, ask([3, 1, 4, 1, 5], 10, seed=7))
    assert answered.tokens[0] == expected([3, 1, 4, 1, 5], 7, 10)
    assert answered.finishes[0].finish is FinishReason.LENGTH
    assert answered.admitted == Admitted(5, 0)


@pytest.mark.parametrize("ahead", [False, True])
@pytest.mark.parametrize("seconds", [0, 0.005, 0.03])
async def test_closing_fails_who_runs_who_waits_and_who_comes_later(
    ahead: bool, seconds: float
) -> None:
    async with serving(recall_model(launch_ahead=ahead, slots=2, seconds=0.01)) as engine:
        asking = [asyncio.create_task(collect(engine, ask([1, n], 50))) for n in range(5)]
        await asyncio.sleep(seconds)
        engine.close()
        asking.append(asyncio.create_task(collect(engine, ask([2]))))
        ended = await asyncio.wait_for(asyncio.gather(*asking, return_exceptions=True), 10)
    assert {type(error) for error in ended} == {Closed}


@pytest.mark.parametrize("ahead", [False, True])
@pytest.mark.parametrize("blocks", [16, 64])
@pytest.mark.parametrize("step_tokens", [3, 16])
async def test_parity_under_random_arrivals_and_cancellation(
    ahead: bool, blocks: int, step_tokens: int
) -> None:
    chance = random.Random(blocks * 100 + step_tokens)
    model = recall_model(blocks=blocks, launch_ahead=ahead)
    shared = [chance.randrange(97) for _ in range(20)]
    async with serving(model, step_tokens=step_tokens) as engine:

        async def one(number: int) -> None:
            await asyncio.sleep(chance.random() * 0.05)
            prompt = shared[: chance.randrange(20)] + [
                chance.randrange(97) for _ in range(chance.randrange(1, 20))
            ]
            count = chance.randrange(1, 24)
            answer = collect(engine, ask(prompt, count, seed=number))
            if chance.random() < 0.3:
                with suppress(TimeoutError):
                    await asyncio.wait_for(answer, chance.random() * 0.05)
                return
            answered = await answer
            assert answered.tokens[0] == expected(prompt, number, count)

        await asyncio.gather(*(one(number) for number in range(150)))
    if blocks == 16:
        assert counted(engine, "preemptions") > 0
    assert len(model.threads) == 1


async def test_a_long_answer_fills_the_context_to_the_brim() -> None:
    model = recall_model(blocks=8, block_size=4, max_context=32)
    async with serving(model) as engine:
        answered = await collect(engine, ask(list(range(30)), None))
        assert len(answered.tokens[0]) == 2
        with pytest.raises(TooLong) as refused:
            await collect(engine, ask([1] * 32))
    assert (refused.value.prompt_tokens, refused.value.max_context) == (32, 32)


async def test_an_engine_given_up_answers_all_who_wait() -> None:
    async with serving(recall_model(slots=1, seconds=0.05)) as engine:
        waiting = [asyncio.create_task(collect(engine, ask([1], 50))) for _ in range(2)]
        await asyncio.sleep(0.1)
        engine.abandon("It has stalled.")
        for task in waiting:
            with pytest.raises(Failed, match="stalled"):
                await asyncio.wait_for(task, 5)


async def test_ids_beyond_the_vocabulary_are_refused() -> None:
    async with serving(recall_model()) as engine:
        with pytest.raises(Invalid, match="98 is outside the model's 98 tokens"):
            await collect(engine, ask([98]))


def test_a_pool_too_small_for_one_sequence_is_refused() -> None:
    model = RecallModel(replace(recall_model(blocks=8).capacity, max_context=33))
    with pytest.raises(ValueError, match="8 blocks of 4 tokens cannot hold one sequence of 33"):
        Stepper(model, step_tokens=16, metrics=LlmMetrics("recall"))


async def test_too_many_are_refused_before_anything_is_queued() -> None:
    async with serving(recall_model(slots=1, seconds=0.002), waiting=1) as engine:
        running = asyncio.create_task(collect(engine, ask([1], 20)))
        queued = asyncio.create_task(collect(engine, ask([2], 2)))
        await asyncio.sleep(0.01)
        with pytest.raises(Busy):
            await collect(engine, ask([3], 2))
        assert (await queued).tokens[0] == expected([2], 0, 2)
        assert (await running).tokens[0] == expected([1], 0, 20)
        with pytest.raises(Invalid, match="n=3"):
            await collect(engine, ask([3], 2, n=3))
        assert counted(engine, "requests_rejected") == 1


@pytest.mark.parametrize("ahead", [False, True])
async def test_banned_tokens_are_known_when_a_token_is_sampled(ahead: bool) -> None:
    """``RecallModel`` samples what it likes; the chunks tell it what it should not."""
    model = recall_model(launch_ahead=ahead)
    tokens = expected([1, 2], 3, 12)
    banned: list[tuple[int, ...]] = []
    launch = model.launch

    def watched(chunks: Any) -> Any:
        banned.extend(chunk.banned for chunk in chunks if chunk.samples)
        return launch(chunks)

    model.launch = watched  # type: ignore[method-assign]
    words = ((96,), (2, 50), (tokens[4], tokens[5], 60), (tokens[4], 1, 61))
    async with serving(model) as engine:
        answered = await collect(engine, ask([1, 2], 12, seed=3, bad_words=words))
    assert answered.tokens[0] == tokens
    assert banned == [(96, 60) if i == 6 else (96,) for i in range(12)]


async def test_a_timeout_counts_while_a_grammar_is_compiled() -> None:
    known = threading.Event()

    def vocabulary() -> Vocabulary:
        known.wait()
        return byte_pipeline().vocabulary()

    grammars = Grammars(vocabulary, 128)
    request = replace(ask([1], 2, timeout_s=0.02), grammar=Grammar("regex", "a*"))
    try:
        async with serving(recall_model(), grammars=grammars) as engine:
            with pytest.raises(TimedOut):
                await collect(engine, request)
            assert engine.admission.running == 0
    finally:
        known.set()
        grammars.close()


async def test_the_lower_priority_goes_first() -> None:
    order: list[int] = []
    async with serving(recall_model(slots=1, seconds=0.002)) as engine:

        async def one(priority: int) -> None:
            await collect(engine, ask([1], 2, priority=priority))
            order.append(priority)

        await asyncio.gather(*(one(priority) for priority in (0, 5, 1, -3, 2)))
    assert order == [0, -3, 1, 2, 5]


async def test_users_take_turns() -> None:
    order: list[str] = []
    async with serving(recall_model(slots=1, seconds=0.002)) as engine:

        async def one(key: str) -> None:
            await collect(engine, ask([1], 3, user=User(key)))
            order.append(key)

        await asyncio.gather(*(one(key) for key in "aaaaabb"))
    assert order == [*"ababaaa"]


@pytest.mark.parametrize("n", [1, 2])
async def test_who_fills_the_queue_gives_way(n: int) -> None:
    """What gives way is as if it had been refused at once."""
    async with serving(recall_model(slots=1, seconds=0.002), waiting=2 * n) as engine:
        running = asyncio.create_task(collect(engine, ask([1], 20, user=User("a"))))
        queued = [
            asyncio.create_task(collect(engine, ask([1, i], 2, n=n, user=User("a"))))
            for i in range(2)
        ]
        await asyncio.sleep(0.01)
        other = await collect(engine, ask([2], 2, n=n, user=User("b")))
        assert other.tokens[n - 1] == expected([2], n - 1, 2)
        with pytest.raises(Busy, match="are waiting"):
            await queued[1]
        assert (await running).tokens[0] == expected([1], 0, 20)
        assert (await queued[0]).tokens[0] == expected([1, 0], 0, 2)
        assert counted(engine, "requests_rejected") == 1
        assert counted(engine, "requests_finished", reason="length") == 1 + 2 * n
        assert counted(engine, "requests_finished", reason="cancelled") == 0


async def test_what_is_found_in_the_cache_is_not_charged() -> None:
    """One user's prompts are all the same, the other's all different."""
    order: list[str] = []
    async with serving(recall_model(slots=1, seconds=0.001)) as engine:

        async def one(key: str, number: int) -> None:
            prompt = [1] * 40 if key == "a" else [number] * 40
            await collect(engine, ask(prompt, 1, user=User(key)))
            order.append(key)

        await asyncio.gather(*(one(key, 2 + i) for i, key in enumerate("ab" * 12)))
    assert order[:17].count("a") == 12


@pytest.mark.parametrize("wish", [{"allowed_token_ids": (1, 98)}, {"logit_bias": {1: 2, 98: 2}}])
async def test_wishes_for_tokens_that_the_model_does_not_have_are_refused(
    wish: dict[str, Any],
) -> None:
    request = ask([1], 2)
    sampling = replace(request.sampling, **wish)
    async with serving(recall_model()) as engine:
        with pytest.raises(Invalid, match="98 is outside the model's 98 tokens") as refused:
            await collect(engine, replace(request, sampling=sampling))
    assert [refused.value.param] == [*wish]
