"""How likely the tokens of prompts and answers were, whatever happens to their sequences."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import pytest

from models.errors import Failed
from models.events import FinishReason
from models.schedule.budget import SCORED_TOKENS
from models.schedule.sequence import Scores
from models.tokens import Admitted, Tokens
from tests.models.asking import ask, collect, serving
from tests.models.counted import counted
from tests.models.recall import CURSED, expected, recall_model, score


def scores_of(tokens: list[int], first: int) -> list[Scores]:
    return [score(tokens[:i], tokens[i]) for i in range(first, len(tokens))]


@pytest.mark.parametrize("ahead", [False, True])
@pytest.mark.parametrize("blocks", [16, 64])
async def test_scores_are_right_whatever_happens_to_their_sequences(
    ahead: bool, blocks: int
) -> None:
    """Chunks, prefixes that others left in the cache, preemption, several choices."""
    chance = random.Random(blocks)
    model = recall_model(blocks=blocks, launch_ahead=ahead)
    shared = [chance.randrange(97) for _ in range(20)]
    async with serving(model, step_tokens=7) as engine:

        async def one(number: int) -> None:
            await asyncio.sleep(chance.random() * 0.05)
            prompt = shared[: chance.randrange(20)] + [chance.randrange(97) for _ in range(3)]
            count, n = chance.randrange(1, 24), 1 + number % 2
            request = ask(prompt, count, seed=number, n=n, scored=number % 3 > 0)
            answered = await collect(engine, request)
            assert answered.admitted is not None
            if number % 3 == 0:
                assert answered.admitted.scores == ()
                return
            assert list(answered.admitted.scores) == scores_of(prompt, 1)
            for choice in range(n):
                tokens = expected(prompt, number + choice, count)
                assert answered.tokens[choice] == tokens
                assert answered.scores[choice] == scores_of(prompt + tokens, len(prompt))

        await asyncio.gather(*(one(number) for number in range(90)))
    if blocks == 16:
        assert counted(engine, "preemptions") > 0


@pytest.mark.parametrize("ahead", [False, True])
async def test_a_prompt_can_be_scored_without_an_answer(ahead: bool) -> None:
    prompt = [5, 6, 7, 8]
    async with serving(recall_model(launch_ahead=ahead)) as engine:
        answered = await collect(engine, ask(prompt, 0, scored=True))
    assert answered.admitted == Admitted(4, 0, tuple(scores_of(prompt, 1)))
    assert answered.tokens == {0: []}
    assert answered.finishes == {0: Tokens(0, (), FinishReason.LENGTH)}


async def test_the_token_that_stops_is_scored_too() -> None:
    tokens = expected([5, 6], 1, 20)
    async with serving(recall_model()) as engine:
        request = ask([5, 6], 20, seed=1, stop_ids=frozenset({tokens[0]}), scored=True)
        answered = await collect(engine, request)
    assert answered.tokens[0] == []
    assert answered.scores[0] == [score([5, 6], tokens[0])]


async def test_a_step_scores_only_so_many_tokens() -> None:
    model = recall_model(max_context=1024, blocks=512)
    most = 0
    launch = model.launch

    def watched(chunks: Any) -> Any:
        nonlocal most
        most = max(most, sum(len(chunk.targets) for chunk in chunks))
        return launch(chunks)

    model.launch = watched  # type: ignore[method-assign]
    prompts = [[i, *([1] * 300)] for i in range(3)]
    async with serving(model, step_tokens=2000) as engine:
        every = [collect(engine, ask(prompt, 1, scored=True)) for prompt in prompts]
        for prompt, answered in zip(prompts, await asyncio.gather(*every), strict=True):
            assert answered.admitted == Admitted(301, 0, tuple(scores_of(prompt, 1)))
    assert most == SCORED_TOKENS


async def test_a_failed_step_takes_no_scores_away() -> None:
    model = recall_model(fail_on=CURSED, launch_ahead=True)
    async with serving(model, step_tokens=1) as engine:
        older = asyncio.create_task(collect(engine, ask([1, 2, 3], 5, scored=True)))
        await asyncio.sleep(0)
        with pytest.raises(Failed):
            await collect(engine, ask([7, 7, CURSED, 4], 20))
        admitted = (await older).admitted
    assert admitted == Admitted(3, 0, tuple(scores_of([1, 2, 3], 1)))
