"""Logprobs of a whole engine, against transformers' own log-softmax over the whole text."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator
from typing import Any

import pytest
import torch

from models.events import Event, Finished, Started, Text, TokenLogprob
from models.request import GenerateRequest, SamplingParams, TokenPrompt
from models.scheduled import Scheduled
from models.step.cached import CachedModel
from models.step.plain import PlainStepModel
from tests.models.counted import counted
from tests.models.step.tiny import served
from tests.models.tiny_engine import BYTES, Tiny, byte_model, eager_logprobs, engine_over

CLOSE = 2e-4


@pytest.fixture(scope="module", params=["paged", "a tight pool", "one sequence at a time"])
def tiny(request: pytest.FixtureRequest) -> Iterator[Tiny]:
    if request.param == "one sequence at a time":
        engine = engine_over(PlainStepModel(CachedModel(byte_model(), 64), slots=4))
    else:
        tight = 0.00002 if request.param == "a tight pool" else 0.001
        engine = engine_over(served(byte_model(), kv_cache_gib=tight, max_context=64, slots=6))
    with engine:
        yield Tiny(engine, byte_model())
        engine.engine.stepper.pool.check()
        assert request.param != "a tight pool" or counted(engine.engine, "preemptions")


def ask(
    prompt: list[int],
    *,
    logprobs: int | None = 2,
    prompt_logprobs: int | None = 2,
    max_tokens: int = 6,
    n: int = 1,
    **sampling: object,
) -> GenerateRequest:
    return GenerateRequest(
        id=f"{random.getrandbits(60)}",
        prompt=TokenPrompt(tuple(prompt)),
        sampling=SamplingParams(
            max_tokens=max_tokens,
            logprobs=logprobs,
            prompt_logprobs=prompt_logprobs,
            ignore_eos=True,
            **sampling,  # type: ignore[arg-type]
        ),
        n=n,
        return_token_ids=True,
    )


async def collect(engine: Scheduled, request: GenerateRequest) -> list[Event]:
    return [event async for event in engine.generate(request)]


def told(events: list[Event], choice: int = 0) -> tuple[list[TokenLogprob], list[int]]:
    said = [e for e in events if isinstance(e, Text | Finished) and e.choice == choice]
    return [one for e in said for one in e.logprobs], [i for e in said for i in e.token_ids]


def check(logprobs: list[TokenLogprob], ids: list[int], rows: torch.Tensor, top: int) -> None:
    assert [one.token_id for one in logprobs] == ids
    for one, row in zip(logprobs, rows, strict=True):
        assert one.logprob == pytest.approx(float(row[one.token_id]), abs=CLOSE)
        best = row.topk(top)
        assert [alternative.logprob for alternative in one.top] == pytest.approx(
            best.values.tolist(), abs=CLOSE
        )
        for alternative in one.top:
            assert alternative.logprob == pytest.approx(float(row[alternative.token_id]), abs=CLOSE)


def prompts(count: int, longest: int = 40) -> list[list[int]]:
    chance = random.Random(3)
    shared = [chance.randrange(BYTES) for _ in range(longest)]
    return [
        shared[: chance.randrange(longest)] + [chance.randrange(BYTES) for _ in range(5)]
        for _ in range(count)
    ]


async def test_prompts_and_answers_under_load(tiny: Tiny) -> None:
    """Many at once: chunks, shared prefixes and preemption change nothing."""

    async def one(number: int, prompt: list[int]) -> None:
        wish: dict[str, Any] = (
            {"temperature": 0.0} if number % 2 else {"temperature": 1.5, "seed": number}
        )
        await asyncio.sleep(number * 0.003)
        events = await collect(
            tiny.engine, ask(prompt, max_tokens=16, presence_penalty=1.0, **wish)
        )
        logprobs, ids = told(events)
        rows = tiny.logprobs(prompt + ids)
        check(logprobs, ids, rows[len(prompt) - 1 : -1], 2)
        started = events[0]
        assert isinstance(started, Started)
        assert started.token_ids == tuple(prompt)
        first, *rest = started.logprobs
        assert (first.token_id, first.logprob, first.top) == (prompt[0], None, ())
        check(rest, prompt[1:], rows[: len(prompt) - 1], 2)

    await asyncio.gather(*(one(i, prompt) for i, prompt in enumerate(prompts(16))))


async def test_cached_prompts_are_scored_too(tiny: Tiny) -> None:
    prompt = list(range(40))
    await collect(tiny.engine, ask(prompt, logprobs=None, prompt_logprobs=None))
    events = await collect(tiny.engine, ask(prompt, max_tokens=0))
    started, finished = events
    assert isinstance(started, Started)
    assert isinstance(finished, Finished)
    assert (started.cached_tokens, finished.usage.completion_tokens) == (0, 0)
    check(list(started.logprobs[1:]), prompt[1:], tiny.logprobs(prompt)[:-1], 2)


async def test_choices_share_the_prompt_that_the_first_one_scores(tiny: Tiny) -> None:
    prompt = list(range(40))
    events = await collect(tiny.engine, ask(prompt, n=3, seed=5))
    started = events[0]
    assert isinstance(started, Started)
    assert len(started.logprobs) == len(prompt)
    assert sum(isinstance(event, Started) for event in events) == 1
    for choice in range(3):
        logprobs, ids = told(events, choice)
        check(logprobs, ids, tiny.logprobs(prompt + ids)[len(prompt) - 1 : -1], 2)


async def test_a_prompt_of_one_token(tiny: Tiny) -> None:
    started, finished = await collect(tiny.engine, ask([7], max_tokens=0))
    assert isinstance(started, Started)
    assert [one.logprob for one in started.logprobs] == [None]
    assert isinstance(finished, Finished)


def test_eager_rows_are_probabilities() -> None:
    rows = eager_logprobs(byte_model(), [1, 2, 3])
    assert rows.exp().sum(-1).tolist() == pytest.approx([1.0] * 3, abs=1e-5)
