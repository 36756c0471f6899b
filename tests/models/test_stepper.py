"""Steps whose caller went away, and over sequences that follow a grammar among others."""

from __future__ import annotations

import asyncio
from concurrent.futures import Future

import pytest

from models.errors import Closed, Invalid
from models.events import FinishReason
from models.metrics import LlmMetrics
from models.progress import Progress
from models.request import SamplingParams
from models.schedule.sequence import Ruling, Sequence
from models.stepper import Stepper
from tests.models.recall import VOCABULARY, expected, recall_model

ANY = Ruling(b"\xff" * -(-VOCABULARY // 8))


class Ruled:
    """A constraint whose rulings the test gives."""

    def __init__(self, *, slow: bool = False) -> None:
        self.seen: list[int] = []
        self.slow = slow
        self.ruling: Future[Ruling] = Future()

    @property
    def late(self) -> bool:
        return self.slow and not self.ruling.done()

    def advance(self, token_id: int) -> None:
        self.seen.append(token_id)
        self.ruling = Future()

    def rule(self, ruling: Ruling = ANY) -> None:
        self.ruling.set_result(ruling)


def sequence(constraint: Ruled | None, stop_ids: frozenset[int] = frozenset()) -> Sequence:
    return Sequence("s", [1, 2, 3], SamplingParams(), stop_ids, 60, 7, constraint=constraint)


@pytest.fixture(params=[False, True], ids=["", "ahead"])
def stepper(request: pytest.FixtureRequest) -> Stepper:
    model = recall_model(launch_ahead=request.param)
    return Stepper(model, step_tokens=64, metrics=LlmMetrics("m"))


async def steps(stepper: Stepper, one: Sequence, count: int) -> list[int]:
    tokens: list[int] = []
    for _ in range(count):
        (progress,) = await stepper.step([one])
        tokens += progress.token_ids
    return tokens


@pytest.mark.parametrize("ahead", [False, True])
async def test_a_step_that_nobody_waited_for_is_read_by_the_next(ahead: bool) -> None:
    model = recall_model(launch_ahead=ahead, seconds=0.02)
    stepper = Stepper(model, step_tokens=64, metrics=LlmMetrics("m"))
    one = sequence(None)
    stepper.add(one)
    for _ in range(3):
        left = asyncio.create_task(stepper.step([one]))
        await asyncio.sleep(0)
        left.cancel()
        await asyncio.wait([left])
        assert left.cancelled()
    assert await steps(stepper, one, 4) == expected([1, 2, 3], 7, 4)
    stepper.remove(one)
    stepper.close()


@pytest.mark.parametrize("ahead", [False, True])
async def test_closing_ends_the_step_that_runs_and_any_later_one(
    ahead: bool, caplog: pytest.LogCaptureFixture
) -> None:
    model = recall_model(launch_ahead=ahead, seconds=0.02)
    stepper = Stepper(model, step_tokens=64, metrics=LlmMetrics("m"))
    one = sequence(None)
    stepper.add(one)
    running = asyncio.create_task(stepper.step([one]))
    await asyncio.sleep(0)
    stepper.close()
    launched = model.steps
    for (progress,) in (await running, await stepper.step([one])):
        assert isinstance(progress.error, Closed)
    stepper.remove(one)
    assert model.steps == launched
    assert stepper.failure is None
    assert not caplog.records


@pytest.mark.parametrize("ahead", [False, True])
async def test_closing_while_a_failure_is_cleared_up(ahead: bool) -> None:
    model = recall_model(launch_ahead=ahead, seconds=0.02, fail_on=3)
    stepper = Stepper(model, step_tokens=64, metrics=LlmMetrics("m"))
    one = sequence(None)
    stepper.add(one)
    running = asyncio.create_task(stepper.step([one]))
    while stepper.failure is None:  # noqa: ASYNC110 - nobody tells of it sooner
        await asyncio.sleep(0)
    stepper.close()
    (progress,) = await running
    assert isinstance(progress.error, Closed)


async def test_others_do_not_wait_for_a_late_grammar(stepper: Stepper) -> None:
    constraint = Ruled(slow=True)
    late, free = sequence(constraint), sequence(None)
    for one in (late, free):
        stepper.add(one)
    assert len(await steps(stepper, free, 5)) >= 4
    assert late.generated == 0
    constraint.rule()
    await steps(stepper, free, 3)
    assert late.generated == 1
    assert constraint.seen == late.tokens[3:]
    for one in (late, free):
        stepper.remove(one)
    stepper.close()


async def test_alone_it_is_waited_for(stepper: Stepper) -> None:
    constraint = Ruled(slow=True)
    late = sequence(constraint)
    constraint.rule()
    stepper.add(late)
    await steps(stepper, late, 2)
    asyncio.get_running_loop().call_later(0.01, constraint.rule)
    generated = late.generated
    await steps(stepper, late, 3)
    assert late.generated == generated + 1
    stepper.remove(late)
    stepper.close()


async def test_a_token_is_only_sampled_once_the_last_is_known(stepper: Stepper) -> None:
    constraint = Ruled()
    ruled, free = sequence(constraint), sequence(None)
    for one in (ruled, free):
        stepper.add(one)
    for _ in range(10):
        if not constraint.ruling.done():
            constraint.rule()
        await stepper.step([ruled, free])
        assert ruled.pending <= 1
        assert constraint.seen == ruled.tokens[3:]
    for one in (ruled, free):
        stepper.remove(one)
    stepper.close()


async def test_the_end_of_a_grammar_ends_its_sequence(stepper: Stepper) -> None:
    assert await _ending(stepper, Ruling(ANY.allowed, finished=True)) == Progress(
        finish=FinishReason.STOP
    )


async def test_the_error_of_a_grammar_is_its_sequences(stepper: Stepper) -> None:
    error = Invalid("too complex")
    assert await _ending(stepper, Ruling(ANY.allowed, error=error)) == Progress(error=error)


async def _ending(stepper: Stepper, ruling: Ruling) -> Progress:
    constraint = Ruled()
    ruled = sequence(constraint)
    constraint.rule(ruling)
    stepper.add(ruled)
    (progress,) = await stepper.step([ruled])
    assert ruled.ended
    assert stepper.live == 0
    stepper.close()
    return progress
