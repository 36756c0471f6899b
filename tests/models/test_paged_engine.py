"""A tiny random model through the whole engine: its answers equal full recomputation.

Whatever arrives when, is preempted or goes away meanwhile.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncGenerator
from contextlib import aclosing, asynccontextmanager
from typing import Any

import pytest
import torch

from models.request import SamplingParams
from models.step.paged import PagedModel
from models.token_engine import TokenEngine
from models.tokens import TokenRequest, Tokens
from tests.models.asking import assert_nothing_held, collect
from tests.models.counted import counted
from tests.models.paging import answers, engine_over
from tests.models.step.tiny import VOCAB, greedy, served, tiny

GREEDY = SamplingParams(temperature=0)
MOST = 16  # tokens of an answer
TINY_POOL: dict[str, Any] = {"kv_cache_gib": 64 * 256 / 2**30, "slots": 8}  # 64 tokens
WISHES: list[dict[str, Any]] = [
    {"temperature": 1.0},
    {"temperature": 0.7, "top_p": 0.8, "frequency_penalty": 0.8},
    {"temperature": 1.2, "top_k": 7, "presence_penalty": 1.0},
    {"temperature": 0.9, "min_p": 0.05, "repetition_penalty": 1.4},
    {"temperature": 1.1, "repetition_penalty": 0.8, "frequency_penalty": -0.5},
    {"temperature": 0, "presence_penalty": 0.7, "repetition_penalty": 1.2},
    {"temperature": 1.0, "logit_bias": {5: 3.0, 6: -100.0}, "min_tokens": 3},
]


@pytest.fixture(autouse=True, scope="module")
def _one_thread() -> None:
    torch.set_num_threads(1)


@pytest.fixture(scope="module")
def llama() -> Any:
    return tiny("llama")


@pytest.fixture(scope="module")
def prompts() -> list[list[int]]:
    """Some share a beginning; the longest leave just room for an answer."""
    chance = random.Random(5)
    shared = [chance.randrange(3, VOCAB) for _ in range(24)]
    own = [[chance.randrange(3, VOCAB) for _ in range(chance.randrange(1, 24))] for _ in range(32)]
    return [shared[: chance.choice((0, 0, 7, 24))] + tail for tail in own]


@pytest.fixture(scope="module")
def expected(llama: Any, prompts: list[list[int]]) -> list[list[int]]:
    return [greedy(llama, prompt, MOST) for prompt in prompts]


@asynccontextmanager
async def serving(
    model: Any, *, ahead: bool, step_tokens: int = 8, **wishes: Any
) -> AsyncGenerator[TokenEngine, None]:
    paged = served(model, **wishes)
    assert isinstance(paged, PagedModel), paged.describe()
    async with engine_over(paged, ahead=ahead, step_tokens=step_tokens) as engine:
        yield engine


async def begin(engine: TokenEngine, prompt: list[int], read: int) -> list[int]:
    """Goes away after so many tokens of a greedy answer, at the earliest when it was admitted."""
    request = TokenRequest(f"r{random.getrandbits(64)}", tuple(prompt), GREEDY, frozenset())
    seen: list[int] = []
    async with aclosing(engine.generate(request)) as items:
        async for item in items:
            seen += item.token_ids if isinstance(item, Tokens) else ()
            if len(seen) >= read:
                break
    return seen


@pytest.mark.parametrize("ahead", [False, True])
async def test_greedy_answers_equal_full_recomputation(
    llama: Any, prompts: list[list[int]], expected: list[list[int]], ahead: bool
) -> None:
    chance = random.Random(ahead)
    async with serving(llama, ahead=ahead, **TINY_POOL) as engine:

        async def one(prompt: list[int], answer: list[int]) -> None:
            await asyncio.sleep(chance.random() * 0.2)
            if chance.random() < 0.3:
                seen = await begin(engine, prompt, chance.randrange(MOST))
                assert seen[:MOST] == answer[: len(seen)]
            else:
                count = chance.randrange(1, MOST + 1)
                sampled = await answers(engine, prompt, temperature=0, max_tokens=count)
                assert sampled == answer[:count]

        pairs = list(zip(prompts, expected, strict=True))
        await asyncio.gather(*(one(*pair) for pair in pairs * 2))
        assert counted(engine, "preemptions") > 0
        assert_nothing_held(engine)


@pytest.mark.parametrize("ahead", [False, True])
async def test_whoever_leaves_in_the_queue_or_in_prefill_disturbs_nobody(
    llama: Any, prompts: list[list[int]], expected: list[list[int]], ahead: bool
) -> None:
    async with serving(llama, ahead=ahead, step_tokens=3, **TINY_POOL) as engine:
        staying = [
            asyncio.create_task(answers(engine, prompt, temperature=0, max_tokens=6))
            for prompt in prompts[:8]
        ]
        leaving = [asyncio.create_task(begin(engine, prompt, 99)) for prompt in prompts[8:]]
        for task in leaving:
            await asyncio.sleep(0.003)
            task.cancel()
        assert await asyncio.gather(*staying) == [answer[:6] for answer in expected[:8]]
        await asyncio.wait(leaving)
        assert_nothing_held(engine)


@pytest.mark.parametrize("ahead", [False, True])
async def test_seeded_answers_with_penalties_are_the_same_alone(
    llama: Any, prompts: list[list[int]], ahead: bool
) -> None:
    wishes = [{**WISHES[i % len(WISHES)], "seed": i, "max_tokens": MOST} for i in range(21)]
    asked = list(zip(prompts, wishes, strict=False))
    async with serving(llama, ahead=False, step_tokens=100) as engine:
        alone = [await answers(engine, prompt, **wish) for prompt, wish in asked]
    chance = random.Random(2 + ahead)
    async with serving(llama, ahead=ahead, **TINY_POOL) as engine:

        async def one(prompt: list[int], wish: dict[str, Any]) -> list[int]:
            await asyncio.sleep(chance.random() * 0.1)
            return await answers(engine, prompt, **wish)

        assert await asyncio.gather(*(one(*pair) for pair in asked)) == alone
        assert counted(engine, "preemptions") > 0
        assert_nothing_held(engine)


@pytest.mark.parametrize("ahead", [False, True])
async def test_a_seed_gives_the_same_among_31_neighbours(
    llama: Any, prompts: list[list[int]], ahead: bool
) -> None:
    wish = {"temperature": 1.0, "seed": 11, "max_tokens": MOST}
    async with serving(llama, ahead=ahead, slots=32, step_tokens=48) as engine:
        alone = await answers(engine, prompts[0], **wish)
        neighbours = [
            answers(engine, prompt, **{"max_tokens": MOST, **WISHES[i % len(WISHES)]})
            for i, prompt in enumerate(prompts[1:])
        ]
        together = await asyncio.gather(answers(engine, prompts[0], **wish), *neighbours)
        assert len(together) == 32
        assert together[0] == alone
        assert_nothing_held(engine)


async def test_choices_of_one_request_go_on_from_its_seed(
    llama: Any, prompts: list[list[int]]
) -> None:
    sampling = SamplingParams(temperature=1.0, seed=20, max_tokens=MOST)
    async with serving(llama, ahead=True, step_tokens=64) as engine:
        request = TokenRequest("four", tuple(prompts[0]), sampling, frozenset(), n=4)
        together = (await collect(engine, request)).tokens
        alone = [
            await answers(engine, prompts[0], temperature=1.0, seed=20 + i, max_tokens=MOST)
            for i in range(4)
        ]
    assert [together[i] for i in range(4)] == alone
    assert len({tuple(answer) for answer in alone}) == 4
