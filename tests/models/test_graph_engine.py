"""The whole engine over recorded decode steps: small pools, shared prefixes, steps ahead."""

from __future__ import annotations

import asyncio
import random

import pytest
import torch
from transformers import PreTrainedModel

from models.step import varlen
from tests.models.asking import assert_nothing_held
from tests.models.counted import counted
from tests.models.paging import answers, engine_over
from tests.models.step.replaying import BLOCK, graphed
from tests.models.step.tiny import VOCAB, greedy, tiny

MOST = 16  # tokens of an answer


@pytest.fixture(autouse=True)
def _single_precision(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(varlen, "PRECISIONS", (torch.float32,))


@pytest.fixture(scope="module")
def llama() -> PreTrainedModel:
    torch.set_num_threads(1)
    return tiny("llama")


@pytest.mark.parametrize("ahead", [False, True])
async def test_answers_equal_full_recomputation(llama: PreTrainedModel, ahead: bool) -> None:
    chance = random.Random(ahead)
    shared = [chance.randrange(3, VOCAB) for _ in range(3 * BLOCK)]
    prompts = [
        shared[: chance.choice((0, 5, 12))]
        + [chance.randrange(3, VOCAB) for _ in range(chance.randrange(1, 20))]
        for _ in range(24)
    ]
    async with engine_over(graphed(llama, blocks=16), ahead=ahead) as engine:

        async def one(prompt: list[int]) -> list[int]:
            await asyncio.sleep(chance.random() * 0.2)
            return await answers(engine, prompt, temperature=0, max_tokens=MOST)

        sampled = await asyncio.gather(*map(one, prompts))
        assert counted(engine, "preemptions") > 0
        assert_nothing_held(engine)
    assert sampled == [greedy(llama, prompt, MOST) for prompt in prompts]
