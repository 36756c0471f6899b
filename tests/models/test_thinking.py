"""Bounded reasoning through the whole engine: exact, whatever arrives when or is preempted."""

from __future__ import annotations

import asyncio
import pickle
import random
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest
import torch

from models.errors import Invalid
from models.events import FinishReason
from models.metrics import LlmMetrics
from models.request import SamplingParams, ThinkingLimit
from models.schedule.admission import Admission
from models.schedule.lookup import Drafting
from models.step.plain import PlainStepModel
from models.step_loop import StepLoop
from models.stepper import Stepper
from models.token_engine import TokenEngine
from models.tokens import TokenRequest
from tests.models.asking import Answered, ask, assert_nothing_held, collect, serving
from tests.models.counted import counted
from tests.models.counting import Counting
from tests.models.paging import engine_over
from tests.models.recall import Says, echo, next_token, recall_model
from tests.models.step.tiny import served, tiny
from tests.models.tiny_engine import eager_logprobs

END = 40
ENDS = frozenset({END, 41, 42, 43})  # some come by themselves


def limit(tokens: int, *, opened: bool = True, begin: int = 44) -> ThinkingLimit:
    return ThinkingLimit(tokens=tokens, begin=(begin,), end=END, ends=ENDS, opened=opened)


def bounded(
    prompt: list[int], seed: int, count: int, says: Says, thinking: ThinkingLimit
) -> list[int]:
    """What must be said; the reasoning begins at once, or with the first token."""
    said: list[int] = []
    for _ in range(count):
        marked = not thinking.opened
        inside = not ENDS.intersection(said) and (not marked or said[:1] == [*thinking.begin])
        full = inside and len(said) - marked == thinking.tokens
        said.append(END if full else says([*prompt, *said], seed))
    return said


@pytest.mark.parametrize("drafting", [None, Drafting(6, 2)])
@pytest.mark.parametrize("ahead", [False, True])
@pytest.mark.parametrize("blocks", [16, 64])
async def test_parity_under_random_arrivals_and_cancellation(
    blocks: int, ahead: bool, drafting: Drafting | None
) -> None:
    """By a model that knows nothing of what it is forced to say."""
    chance = random.Random(blocks)
    model = recall_model(blocks=blocks, launch_ahead=ahead, says=echo)
    metrics = LlmMetrics("recall")
    stepper = Stepper(model, step_tokens=8, metrics=metrics, drafting=drafting)
    admission = Admission(model.capacity.slots, 1000, 100_000)
    engine = TokenEngine(stepper, StepLoop(stepper), admission, metrics)

    async def one(number: int) -> None:
        await asyncio.sleep(chance.random() * 0.05)
        prompt = [chance.randrange(97) for _ in range(chance.randrange(1, 25))]
        count, opened = chance.randrange(1, 34), number % 3 > 0
        first = echo(prompt, number)
        begin = first if number % 2 and first not in ENDS else 44
        thinking = limit(chance.randrange(0, 30), opened=opened, begin=begin)
        request = replace(ask(prompt, count, seed=number), thinking=thinking)
        answer = collect(engine, request)
        if chance.random() < 0.2:
            with suppress(TimeoutError):
                await asyncio.wait_for(answer, chance.random() * 0.05)
            return
        assert (await answer).tokens[0] == bounded(prompt, number, count, echo, thinking)

    await asyncio.gather(*(one(number) for number in range(120)))
    if blocks == 16:
        assert counted(engine, "preemptions") > 0
    if drafting:
        assert counted(engine, "accepted_tokens") > 0
    assert stepper.failure is None
    assert_nothing_held(engine)
    stepper.close()


async def test_every_choice_has_the_whole_limit() -> None:
    async with serving(recall_model()) as engine:
        request = replace(ask([1, 2, 3], 12, seed=7, n=3), thinking=limit(5))
        answered = await collect(engine, request)
    for choice in range(3):
        expected = bounded([1, 2, 3], 7 + choice, 12, next_token, limit(5))
        assert answered.tokens[choice] == expected


async def test_steps_are_launched_ahead_but_near_the_limit() -> None:
    model = recall_model(launch_ahead=True, says=lambda tokens, seed: 1)
    ahead: list[bool] = []
    launch = model.launch

    def seen(chunks: Any) -> Any:
        ahead.extend(chunk.from_slot for chunk in chunks)
        return launch(chunks)

    model.launch = seen  # type: ignore[method-assign]
    async with serving(model) as engine:
        await collect(engine, replace(ask([1, 2], 20), thinking=limit(8)))
    # the prompt, 8 thoughts of which the last and the end are waited for, and 11 of the answer
    assert ahead == [False, *[True] * 7, False, False, *[True] * 10]


async def test_the_end_may_end_the_answer() -> None:
    async with serving(recall_model()) as engine:
        request = ask([1, 2], 20, stop_ids=frozenset({END}))
        answered = await collect(engine, replace(request, thinking=limit(0)))
    end = answered.finishes[0]
    assert (end.finish, end.stop_id, answered.tokens[0]) == (FinishReason.STOP, END, [])


async def test_a_marker_that_the_model_does_not_know_is_refused() -> None:
    async with serving(recall_model()) as engine:
        thinking = replace(limit(3), end=500)
        with pytest.raises(Invalid, match="500"):
            await collect(engine, replace(ask([1, 2], 20), thinking=thinking))


async def test_one_sequence_at_a_time_is_bounded_too() -> None:
    async with serving(PlainStepModel(Counting(), slots=2)) as engine:  # type: ignore[arg-type]
        request = replace(ask([1], 6, seed=0), thinking=limit(2))
        request = replace(request, sampling=SamplingParams(temperature=0, max_tokens=6))
        assert (await collect(engine, request)).tokens[0] == [2, 3, END, 41, 42, 43]


def test_it_crosses_a_hop() -> None:
    request = replace(ask([1], 2), thinking=limit(3))
    assert pickle.loads(pickle.dumps(request)) == request


@pytest.fixture(scope="module")
def llama() -> Any:
    torch.set_num_threads(1)
    return tiny("llama")


WISHES: list[dict[str, Any]] = [
    {"temperature": 0, "logprobs": 2},
    {"temperature": 1.0, "logprobs": 0, "min_tokens": 9},
    {"temperature": 0.7, "top_p": 0.8, "frequency_penalty": 0.8},
    {"temperature": 0.9, "logit_bias": {END: -100.0}, "repetition_penalty": 1.4},
    {"temperature": 1.2, "allowed_token_ids": (4, 7, 8, 9, 11, 30, 31)},
]


async def asked(
    llama: Any, budget: int | None, *, ahead: bool, together: bool, **pool: Any
) -> tuple[list[Answered], float]:
    """What a tiny model answers, one after another or all at once."""
    chance = random.Random(3)
    prompts = [[chance.randrange(3, 40) for _ in range(chance.randrange(1, 30))] for _ in range(15)]
    thinking = None if budget is None else limit(budget)
    requests = [
        TokenRequest(
            f"{i}",
            tuple(prompt),
            SamplingParams(**{"max_tokens": 16, "seed": i, **WISHES[i % len(WISHES)]}),
            frozenset({2}),
            bad_words=((END,),) if i % 2 else (),
            thinking=thinking,
        )
        for i, prompt in enumerate(prompts)
    ]
    model: Any = served(llama, **pool)
    async with engine_over(model, ahead=ahead) as engine:
        if together:
            answers = await asyncio.gather(*(collect(engine, one) for one in requests))
        else:
            answers = [await collect(engine, one) for one in requests]
        return answers, counted(engine, "preemptions")


@pytest.mark.parametrize("ahead", [False, True])
async def test_a_limit_beyond_need_changes_nothing(llama: Any, ahead: bool) -> None:
    free, _ = await asked(llama, None, ahead=ahead, together=False)
    limited, _ = await asked(llama, 16, ahead=ahead, together=False)
    for one, other in zip(free, limited, strict=True):
        assert (one.tokens, one.scores) == (other.tokens, other.scores)


@pytest.mark.parametrize("ahead", [False, True])
async def test_a_real_model_is_bounded_the_same_in_any_company(llama: Any, ahead: bool) -> None:
    alone, _ = await asked(llama, 6, ahead=False, together=False)
    tight = {"kv_cache_gib": 64 * 256 / 2**30, "slots": 8}
    together, preemptions = await asked(llama, 6, ahead=ahead, together=True, **tight)
    assert preemptions > 0
    forced = 0
    for one, other in zip(alone, together, strict=True):
        assert one.tokens == other.tokens
        said = one.tokens[0]
        inside = next((i for i, token in enumerate(said) if token in ENDS), len(said))
        assert inside <= 6
        forced += inside == 6
    assert forced > 5


async def test_the_logprobs_of_the_end_are_the_models_own(llama: Any) -> None:
    sampling = SamplingParams(temperature=0, max_tokens=8, logprobs=1)
    thinking = replace(limit(3), ends=frozenset({END}))
    request = TokenRequest("r", (5, 6, 7), sampling, frozenset(), thinking=thinking)
    async with engine_over(served(llama), ahead=True) as engine:  # type: ignore[arg-type]
        answered = await collect(engine, request)
    said = answered.tokens[0]
    assert said[3] == END
    rows = eager_logprobs(llama, [5, 6, 7, *said])[2:]
    for row, token, score in zip(rows, said, answered.scores[0], strict=False):
        assert score.logprob == pytest.approx(float(row[token]), abs=1e-4)
        assert score.top[0][0] == int(row.argmax())
    assert answered.scores[0][3].rank > 1
