"""Drafted tokens never change an answer: not its tokens, its scores, its end, nor what is held."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest
import torch

from models.events import FinishReason
from models.metrics import LlmMetrics
from models.request import SamplingParams
from models.schedule.admission import Admission
from models.schedule.lookup import Drafting
from models.step.model import StepModel
from models.step.plain import PlainStepModel
from models.step_loop import StepLoop
from models.stepper import Stepper
from models.token_engine import TokenEngine
from models.tokens import TokenRequest
from tests.models.asking import Answered, ask, assert_nothing_held, collect
from tests.models.counted import counted
from tests.models.counting import Counting
from tests.models.recall import echo, expected, recall_model, score
from tests.models.step.tiny import served, tiny

DRAFTING = Drafting(6, 2)
WISHES: list[dict[str, Any]] = [
    {"temperature": 0},
    {"temperature": 0.6},
    {"temperature": 0.7, "top_p": 0.8, "min_tokens": 9},
    {"temperature": 0, "logit_bias": {5: 3.0, 6: -100.0}},
    {"temperature": 0.5, "top_k": 5, "logprobs": 3, "prompt_logprobs": 0},
    {"temperature": 0, "repetition_penalty": 1.3},
    {"temperature": 0.6, "frequency_penalty": 0.4},
    {"temperature": 0.7, "allowed_token_ids": (4, 7, 8, 9, 11, 30, 31)},
]


@asynccontextmanager
async def drafting(
    model: StepModel, step_tokens: int = 16, wish: Drafting | None = DRAFTING
) -> AsyncGenerator[TokenEngine, None]:
    metrics = LlmMetrics("recall")
    stepper = Stepper(model, step_tokens=step_tokens, metrics=metrics, drafting=wish)
    admission = Admission(model.capacity.slots, 1000, 100_000)
    engine = TokenEngine(stepper, StepLoop(stepper), admission, metrics)
    yield engine
    assert stepper.failure is None
    assert_nothing_held(engine)
    stepper.close()


@pytest.mark.parametrize("ahead", [False, True])
@pytest.mark.parametrize("blocks", [16, 64])
@pytest.mark.parametrize("step_tokens", [3, 8, 40])
async def test_parity_under_random_arrivals_and_cancellation(
    ahead: bool, blocks: int, step_tokens: int
) -> None:
    chance = random.Random(blocks * 100 + step_tokens)
    model = recall_model(blocks=blocks, launch_ahead=ahead, says=echo)
    shared = [chance.randrange(97) for _ in range(20)]
    async with drafting(model, step_tokens) as engine:

        async def one(number: int) -> None:
            await asyncio.sleep(chance.random() * 0.05)
            prompt = shared[: chance.randrange(20)]
            prompt += [chance.randrange(97) for _ in range(chance.randrange(1, 10))]
            count = chance.randrange(1, 34)
            answer = collect(engine, ask(prompt, count, seed=number, scored=number % 3 == 0))
            if chance.random() < 0.3:
                with suppress(TimeoutError):
                    await asyncio.wait_for(answer, chance.random() * 0.05)
                return
            check(await answer, prompt, number, count)

        await asyncio.gather(*(one(number) for number in range(120)))
        assert counted(engine, "accepted_tokens") > 0
        assert counted(engine, "drafted_tokens") >= counted(engine, "accepted_tokens")
        if blocks == 16:
            assert counted(engine, "preemptions") > 0


def check(answered: Answered, prompt: list[int], seed: int, count: int) -> None:
    tokens = expected(prompt, seed, count, echo)
    assert answered.tokens[0] == tokens
    if seed % 3 == 0:
        held = [*prompt, *tokens]
        scores = [score(held[: len(prompt) + i], token) for i, token in enumerate(tokens)]
        assert answered.scores[0] == scores
    assert answered.finishes[0].finish is FinishReason.LENGTH


@pytest.mark.parametrize("ahead", [False, True])
async def test_a_stop_within_a_draft_ends_the_answer_there(ahead: bool) -> None:
    model = recall_model(launch_ahead=ahead, says=lambda tokens, seed: tokens[-5])
    prompt = [1, 2, 3, 4, 5, 1, 2, 3, 4, 5]
    async with drafting(model) as engine:
        for stop in range(1, 6):
            answered = await collect(engine, ask(prompt, 30, stop_ids=frozenset({stop})))
            assert answered.tokens[0] == list(range(1, stop))
            assert answered.finishes[0].finish is FinishReason.STOP
            assert answered.finishes[0].stop_id == stop


async def test_repetition_takes_fewer_steps() -> None:
    model = recall_model(says=lambda tokens, seed: tokens[-5])
    async with drafting(model) as engine:
        answered = await collect(engine, ask([1, 2, 3, 4, 5, 1, 2, 3], 50))
    assert answered.tokens[0] == [4, 5, 1, 2, 3] * 10
    assert model.steps < 50  # how many are spared depends on how long steps take here


async def test_what_was_rejected_is_not_found_in_the_prefix_cache() -> None:
    """A second request with the same beginning would read it."""
    for length in range(5, 20):
        model = recall_model(says=echo)
        prompt = [9, 1, 2, 3, 4] * 4
        async with drafting(model) as engine:
            for more in (0, 1, 5):
                longer = prompt[:length] + expected(prompt[:length], 1, more, echo)
                answered = await collect(engine, ask(longer, 30, seed=1))
                assert answered.tokens[0] == expected(longer, 1, 30, echo)


@pytest.mark.parametrize("says", [echo, lambda tokens, seed: tokens[-5]])
async def test_several_choices_are_drafted_each_on_its_own(says: Any) -> None:
    model = recall_model(says=says)
    async with drafting(model) as engine:
        answered = await collect(engine, ask([1, 2, 3, 1, 2, 3, 1], 20, n=3, seed=5))
    for choice in range(3):
        assert answered.tokens[choice] == expected([1, 2, 3, 1, 2, 3, 1], 5 + choice, 20, says)


async def test_a_model_that_samples_one_token_a_sequence_gets_no_drafts() -> None:
    async with drafting(PlainStepModel(Counting(), slots=2)) as engine:
        answered = await collect(engine, ask([1, 2, 3, 1, 2, 3], 8))
        assert counted(engine, "drafted_tokens") == 0
    assert len(answered.tokens[0]) == 8


@pytest.fixture(scope="module")
def llama() -> Any:
    torch.set_num_threads(1)
    return tiny("llama")


async def real(
    llama: Any, wish: Drafting | None, *, ahead: bool, **pool: Any
) -> tuple[list[Answered], float, float]:
    """What a tiny model answers to prompts that repeat themselves, by all kinds of parameters."""
    chance = random.Random(3)
    model: Any = served(llama, **pool)
    model.launch_ahead = ahead
    async with drafting(model, 24, wish) as engine:

        async def one(number: int) -> Answered:
            prompt = [chance.randrange(3, 60) for _ in range(5)] * 4
            sampling = SamplingParams(
                **{"max_tokens": 24, "seed": number, **WISHES[number % len(WISHES)]}
            )
            words = ((5, 6),) if number % 5 == 0 else ((9,),) if number % 5 == 1 else ()
            stops = frozenset({number + 3})
            request = TokenRequest(f"{number}", tuple(prompt), sampling, stops, bad_words=words)
            await asyncio.sleep(chance.random() * 0.1)
            return await collect(engine, request)

        answers = await asyncio.gather(*(one(number) for number in range(32)))
        return answers, counted(engine, "accepted_tokens"), counted(engine, "preemptions")


@pytest.mark.parametrize("ahead", [False, True])
async def test_a_real_model_answers_the_same(llama: Any, ahead: bool) -> None:
    plain, none, _ = await real(llama, None, ahead=ahead)
    drafted, accepted, preemptions = await real(
        llama, DRAFTING, ahead=ahead, kv_cache_gib=80 * 256 / 2**30, slots=6
    )
    assert none == 0
    assert accepted > 5
    assert preemptions > 0
    for one, other in zip(plain, drafted, strict=True):
        assert one.tokens == other.tokens
        assert one.finishes[0].finish == other.finishes[0].finish
        assert one.finishes[0].stop_id == other.finishes[0].stop_id
        for score_of, same in zip(one.scores[0], other.scores[0], strict=True):
            assert score_of.logprob == pytest.approx(same.logprob, abs=1e-4)
