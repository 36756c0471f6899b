"""Steps that fail: whom they take along, and what turns the engine red."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence as Several

import pytest

from models.errors import Failed
from models.request import SamplingParams
from models.schedule.sequence import Chunk, Sequence
from tests.models.asking import ask, collect, serving
from tests.models.recall import CURSED, Ready, RecallModel, expected, recall_model


@pytest.mark.parametrize("ahead", [False, True])
async def test_a_failed_step_fails_its_sequences_and_no_others(ahead: bool) -> None:
    model = recall_model(fail_on=CURSED, launch_ahead=ahead, slots=1)
    async with serving(model) as engine:
        cursed = asyncio.create_task(collect(engine, ask([CURSED, 4], 20)))
        await asyncio.sleep(0)
        waiting = asyncio.create_task(collect(engine, ask([9, 9, 9], 20)))
        with pytest.raises(Failed, match="this token is cursed"):
            await cursed
        assert (await waiting).tokens[0] == expected([9, 9, 9], 0, 20)
        assert engine.stepper.failure == "RuntimeError: this token is cursed"


@pytest.mark.parametrize("ahead", [False, True])
async def test_sequences_outside_a_failed_step_start_over(ahead: bool) -> None:
    """A budget of one token: each step computes the older sequence, or the cursed one alone."""
    model = recall_model(fail_on=CURSED, launch_ahead=ahead)
    async with serving(model, step_tokens=1) as engine:
        older = asyncio.create_task(collect(engine, ask([1, 2, 3], 5)))
        await asyncio.sleep(0)
        with pytest.raises(Failed, match="this token is cursed"):
            await collect(engine, ask([7, 7, CURSED, 4], 20))
        assert (await older).tokens[0] == expected([1, 2, 3], 0, 5)


class Miscounting(RecallModel):
    def launch(self, chunks: Several[Chunk]) -> Ready:
        return Ready(super().launch(chunks).values[1:])


async def test_a_model_that_forgets_a_token_fails_its_step() -> None:
    model = Miscounting(recall_model().capacity)
    async with serving(model) as engine:
        with pytest.raises(Failed, match="0 tokens for 1 sequences"):
            await asyncio.wait_for(collect(engine, ask([1, 2])), 5)
    assert engine.stepper.failure


class Quitting(RecallModel):
    def launch(self, chunks: Several[Chunk]) -> Ready:
        raise SystemExit(3)


async def test_a_model_that_would_end_the_process_fails_its_step() -> None:
    async with serving(Quitting(recall_model().capacity)) as engine:
        with pytest.raises(Failed, match="SystemExit"):
            await asyncio.wait_for(collect(engine, ask([1, 2])), 5)


async def test_our_own_failure_fails_who_runs_and_turns_the_engine_red() -> None:
    async with serving(recall_model()) as engine:
        engine.stepper.pool.block_size = 0
        with pytest.raises(Failed, match="must not be zero"):
            await asyncio.wait_for(collect(engine, ask([1, 2])), 5)
        assert engine.stepper.failure


async def test_a_leaked_block_turns_the_engine_red_and_is_taken_back() -> None:
    async with serving(recall_model()) as engine:
        stray = Sequence("stray", [1] * 9, SamplingParams(), frozenset(), 64, seed=0)
        assert engine.stepper.pool.admit(stray)
        assert (await collect(engine, ask([1, 2]))).tokens[0] == expected([1, 2], 0, 8)
        assert engine.stepper.failure == "AssertionError: 3 of 64 blocks leaked"
        assert engine.admission.running == 0
