"""What a gate does that chooses; how gates batch at all is in ``test_step_gate``."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator

import pytest

from deployments.batch_gate import BatchGate
from tests.deployments.replica import replica_context
from tests.deployments.serving import eventually
from tests.models.embedding import ask, running
from tests.models.tallying import TallyModel


@pytest.fixture(autouse=True)
def _replica() -> Iterator[None]:
    with replica_context():
        yield


class Squares:
    """Squares numbers in batches of two, the smallest first; ``go`` holds up each batch."""

    def __init__(self) -> None:
        self.batches: list[list[int]] = []
        self.go = asyncio.Event()
        self.go.set()

    def choose(self, waiting: Iterable[int]) -> list[int]:
        return sorted(waiting)[:2]

    async def run(self, numbers: list[int]) -> list[int]:
        self.batches.append(numbers)
        await self.go.wait()
        return [number * number for number in numbers]


async def test_those_who_are_not_chosen_go_in_later_batches() -> None:
    squares = Squares()
    gate = BatchGate(squares.run, squares.choose)
    assert await asyncio.gather(*map(gate.advance, [5, 3, 1, 4, 2])) == [25, 9, 1, 16, 4]
    assert squares.batches == [[1, 2], [3, 4], [5]]


async def test_who_has_left_is_not_chosen() -> None:
    squares = Squares()
    squares.go.clear()
    gate = BatchGate(squares.run, squares.choose)
    tasks = [asyncio.create_task(gate.advance(number)) for number in (1, 2, 3, 4, 5)]
    await eventually(lambda: squares.batches)
    tasks[2].cancel()
    tasks[0].cancel()  # in the batch that runs: it is computed, for nobody
    squares.go.set()
    answers = await asyncio.wait_for(asyncio.gather(*tasks, return_exceptions=True), 10)
    assert [answers[index] for index in (1, 3, 4)] == [4, 16, 25]
    assert squares.batches == [[1, 2], [4, 5]]


async def test_requests_that_name_a_multiplexed_model_still_share_one_batch() -> None:
    from ray.serve import context

    model = TallyModel()
    async with running(model) as engine:
        engine.batches = BatchGate(engine.batcher.run, engine.batcher.choose)

        async def request(name: str) -> None:
            context._set_request_context(multiplexed_model_id=name)
            await engine.embed(ask("a"))

        await asyncio.gather(request("one"), request("other"))
    assert model.batches == [[b"a", b"a"]]
