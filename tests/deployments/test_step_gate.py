from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deployments.step_gate import StepGate
from models.errors import Failed
from models.progress import Progress
from models.request import SamplingParams
from models.schedule.sequence import Sequence
from models.stepper import Stepper
from tests.deployments.replica import replica_context
from tests.models.asking import ask, collect, serving
from tests.models.recall import recall_model

STEP_TURNS = 40  # of the event loop: a step that takes a while, without a clock
LONG_STEP_TURNS = 800  # so long that the turns between two steps do not matter


@pytest.fixture(autouse=True)
def _replica() -> Iterator[None]:
    with replica_context():
        yield


def new_sequence(name: str = "0") -> Sequence:
    return Sequence(name, [1], SamplingParams(), frozenset(), max_length=1000, seed=0)


async def turns(count: int) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


class CountingSteps:
    """A step that takes some turns of the loop and gives each live sequence its next number."""

    def __init__(self, step_turns: int = STEP_TURNS) -> None:
        self.step_turns = step_turns
        self.batches: list[list[Sequence]] = []
        self.running = 0

    async def step(self, sequences: list[Sequence]) -> list[Progress]:
        assert self.running == 0, "two steps at once"
        self.running += 1
        self.batches.append(sequences)
        await turns(self.step_turns)
        self.running -= 1
        return [self._advance(sequence) for sequence in sequences]

    def _advance(self, sequence: Sequence) -> Progress:
        if sequence.ended:
            return Progress()
        sequence.tokens.append(len(sequence.tokens))
        return Progress(token_ids=(sequence.tokens[-1],))


class LoopSteps:
    """A hand-written loop over the same steps: what the gate must keep up with."""

    def __init__(self, steps: CountingSteps) -> None:
        self._steps = steps
        self._asks: dict[Sequence, asyncio.Future[Progress]] = {}
        self._loop: asyncio.Task[None] | None = None

    async def advance(self, sequence: Sequence) -> Progress:
        self._asks[sequence] = asyncio.get_running_loop().create_future()
        if self._loop is None or self._loop.done():
            self._loop = asyncio.create_task(self._run())
        return await self._asks[sequence]

    async def _run(self) -> None:
        while self._asks:
            asks, self._asks = self._asks, {}
            answers = await self._steps.step(list(asks))
            for future, answer in zip(asks.values(), answers, strict=True):
                future.set_result(answer)
            await turns(2)


async def generate(steps: StepGate | LoopSteps, sequence: Sequence, count: int) -> list[int]:
    try:
        return [(await steps.advance(sequence)).token_ids[0] for _ in range(count)]
    finally:
        sequence.ended = True


async def arrivals(steps: StepGate | LoopSteps, sequences: int, step_turns: int) -> None:
    """Generations that start and end at random moments of each other's steps."""
    random_ = random.Random(sequences)
    tasks = []
    for index in range(sequences):
        await turns(random_.randrange(2 * step_turns))
        length = random_.randrange(20, 80)
        tasks.append(asyncio.create_task(generate(steps, new_sequence(str(index)), length)))
    await asyncio.gather(*tasks)


def mean_batch(steps: CountingSteps) -> float:
    return sum(map(len, steps.batches)) / len(steps.batches)


async def test_a_single_sequence_advances_step_by_step() -> None:
    steps = CountingSteps()
    assert await generate(StepGate(steps.step), new_sequence(), 5) == [1, 2, 3, 4, 5]
    assert [len(batch) for batch in steps.batches] == [1] * 5


async def test_sequences_that_ask_together_share_every_step() -> None:
    steps = CountingSteps()
    gate = StepGate(steps.step)
    await asyncio.gather(*(generate(gate, new_sequence(str(i)), 10) for i in range(128)))
    assert [len(batch) for batch in steps.batches] == [128] * 10


async def test_a_sequence_that_arrives_during_a_step_joins_all_the_others_at_the_next() -> None:
    steps = CountingSteps()
    gate = StepGate(steps.step)
    early = [asyncio.create_task(generate(gate, new_sequence(str(i)), 6)) for i in range(8)]
    await turns(STEP_TURNS // 2)
    await asyncio.gather(generate(gate, new_sequence("late"), 3), *early)
    assert [len(batch) for batch in steps.batches] == [8, 9, 9, 9, 8, 8]


@pytest.mark.parametrize("sequences", [8, 32, 128])
async def test_the_mean_batch_equals_a_hand_written_loops(sequences: int) -> None:
    gated, looped = CountingSteps(LONG_STEP_TURNS), CountingSteps(LONG_STEP_TURNS)
    await arrivals(StepGate(gated.step), sequences, LONG_STEP_TURNS)
    await arrivals(LoopSteps(looped), sequences, LONG_STEP_TURNS)
    assert mean_batch(gated) == pytest.approx(mean_batch(looped), rel=0.03)


async def storm(gate: StepGate, seed: int, sequences: int, patience: int) -> list[Sequence]:
    """Starts generations and cancels half of them at random moments; returns the survivors."""
    random_ = random.Random(seed)
    doomed: list[asyncio.Task[list[int]]] = []
    spared: dict[Sequence, asyncio.Task[list[int]]] = {}
    for index in range(sequences):
        sequence = new_sequence(str(index))
        task = asyncio.create_task(generate(gate, sequence, random_.randrange(1, 12)))
        if random_.random() < 0.5:
            doomed.append(task)
        else:
            spared[sequence] = task
        await turns(random_.randrange(patience))
        if doomed and random_.random() < 0.6:
            doomed.pop(random_.randrange(len(doomed))).cancel()
    for task in doomed:
        await turns(random_.randrange(patience))
        task.cancel()
    await asyncio.wait_for(asyncio.gather(*spared.values()), 60)
    await asyncio.gather(*doomed, return_exceptions=True)
    return list(spared)


async def assert_open(gate: StepGate) -> None:
    assert await asyncio.wait_for(generate(gate, new_sequence("after"), 3), 10) == [1, 2, 3]


@pytest.mark.parametrize("seed", range(6))
async def test_no_storm_of_cancellations_shuts_the_gate(seed: int) -> None:
    gate = StepGate(CountingSteps(step_turns=seed).step)
    await storm(gate, seed, sequences=128, patience=8)
    await assert_open(gate)


@settings(max_examples=60, deadline=None)
@given(
    step_turns=st.integers(0, 8),
    cancels=st.lists(st.tuples(st.integers(0, 5), st.integers(0, 30)), max_size=6),
)
def test_cancelling_at_any_turn_leaves_the_others_untouched(
    step_turns: int, cancels: list[tuple[int, int]]
) -> None:
    async def run() -> None:
        gate = StepGate(CountingSteps(step_turns).step)
        tasks = [asyncio.create_task(generate(gate, new_sequence(str(i)), 4)) for i in range(6)]
        for index, wait in cancels:
            await turns(wait)
            tasks[index].cancel()
        answers = await asyncio.wait_for(asyncio.gather(*tasks, return_exceptions=True), 10)
        cancelled = {index for index, _ in cancels}
        for index, answer in enumerate(answers):
            if index not in cancelled:
                assert answer == [1, 2, 3, 4]
        await assert_open(gate)

    with replica_context():
        asyncio.run(run())


async def test_a_sequence_cancelled_before_its_batch_is_left_out_of_it() -> None:
    steps = CountingSteps()
    gate = StepGate(steps.step)
    first = asyncio.create_task(generate(gate, new_sequence("first"), 1))
    await turns(STEP_TURNS // 2)
    gone = asyncio.create_task(generate(gate, new_sequence("gone"), 1))
    await turns(1)
    gone.cancel()
    await first
    await assert_open(gate)
    assert "gone" not in [sequence.id for batch in steps.batches for sequence in batch]


async def test_a_step_that_everybody_left_keeps_the_gate_shut_to_its_end() -> None:
    steps = CountingSteps()
    gate = StepGate(steps.step)
    gone = asyncio.create_task(generate(gate, new_sequence("gone"), 2))
    await turns(STEP_TURNS // 2)
    gone.cancel()
    early = asyncio.create_task(generate(gate, new_sequence("early"), 2))
    await turns(STEP_TURNS // 4)
    await asyncio.gather(generate(gate, new_sequence("late"), 2), early)
    assert [len(batch) for batch in steps.batches] == [1, 2, 2]


async def test_an_exception_in_a_step_reaches_its_sequences_and_the_gate_opens_again() -> None:
    failures = [RuntimeError("out of memory")]
    steps = CountingSteps()

    async def step(sequences: list[Sequence]) -> list[Progress]:
        if failures:
            raise failures.pop()
        return await steps.step(sequences)

    gate = StepGate(step)
    answers = await asyncio.gather(
        *(generate(gate, new_sequence(), 1) for _ in range(3)), return_exceptions=True
    )
    assert [str(answer) for answer in answers] == ["out of memory"] * 3
    await assert_open(gate)


async def test_a_cancelled_step_fails_its_sequences_instead_of_leaving_them_hanging() -> None:
    async def step(sequences: list[Sequence]) -> list[Progress]:
        raise asyncio.CancelledError

    with pytest.raises(Failed):
        await asyncio.wait_for(StepGate(step).advance(new_sequence()), 10)


async def test_requests_that_name_a_multiplexed_model_still_share_one_step() -> None:
    from ray.serve import context

    batches: list[int] = []

    def counting(stepper: Stepper) -> StepGate:
        async def step(sequences: list[Sequence]) -> list[Progress]:
            batches.append(len(sequences))
            return await stepper.step(sequences)

        return StepGate(step)

    async with serving(recall_model(), joined=counting) as engine:

        async def request(model: str) -> None:
            context._set_request_context(multiplexed_model_id=model)
            await collect(engine, ask([1], 3))

        await asyncio.gather(request("a"), request("b"))
    assert batches == [2, 2, 2]


async def test_two_gates_of_one_process_do_not_share_a_batch() -> None:
    ours, theirs = CountingSteps(), CountingSteps()
    one, two = StepGate(ours.step), StepGate(theirs.step)
    await asyncio.gather(
        generate(one, new_sequence("one"), 3), generate(two, new_sequence("two"), 3)
    )
    assert {sequence.id for batch in ours.batches for sequence in batch} == {"one"}
