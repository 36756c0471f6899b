from __future__ import annotations

import asyncio
import threading
from concurrent.futures import Future, ThreadPoolExecutor

import pytest

from models.landing import end_of, read
from models.request import SamplingParams
from models.schedule.sequence import Chunk, Ruling, Scores, Sequence
from models.step.model import InFlight
from tests.models.recall import Ready

TOKENS = (1, 2, 3)
SCORED = [Scores(-1.0, 1), Scores(-2.0, 2)]


def chunk(ruling: Future[Ruling] | None = None, targets: tuple[int, ...] = ()) -> Chunk:
    sequence = Sequence("s", [*TOKENS], SamplingParams(), frozenset(), 60, 7)
    return Chunk(
        sequence, 0, 3, True, TOKENS, False, 0, (0,), TOKENS, ruling=ruling, targets=targets
    )


def test_a_step_brings_a_token_for_each_chunk_and_a_score_for_each_target() -> None:
    landed = read([chunk(), chunk(targets=(2, 3))], lambda: Ready([4, 5], SCORED))
    assert landed == ([4, 5], SCORED)


def test_scores_that_nobody_asked_for_are_not_waited_for() -> None:
    assert read([chunk()], lambda: Ready([4], SCORED)) == ([4], [])


@pytest.mark.parametrize(
    ("ready", "told"),
    [
        (Ready([4], SCORED), "made 1 tokens for 2 sequences"),
        (Ready([4, 5, 6], SCORED), "made 3 tokens for 2 sequences"),
        (Ready([4, 5], SCORED[:1]), "scored 1 tokens of 2"),
    ],
)
def test_too_much_or_little_is_an_error(ready: Ready, told: str) -> None:
    with pytest.raises(ValueError, match=told):
        read([chunk(), chunk(targets=(2, 3))], lambda: ready)


@pytest.mark.parametrize("kind", [SystemExit, KeyboardInterrupt])
def test_a_model_cannot_end_the_process(kind: type[BaseException]) -> None:
    def launched() -> InFlight:
        raise kind

    with pytest.raises(RuntimeError, match=kind.__name__):
        read([chunk()], launched)


def test_it_waits_for_what_a_grammar_says() -> None:
    ruling: Future[Ruling] = Future()
    launched = threading.Event()

    def launch() -> InFlight:
        launched.set()
        return Ready([4])

    with ThreadPoolExecutor(1) as thread:
        reading = thread.submit(read, [chunk(ruling)], launch)
        assert launched.wait(10)
        with pytest.raises(TimeoutError):
            reading.result(0.1)
        ruling.set_result(Ruling(b"\xff"))
        assert reading.result(10) == ([4], [])


async def test_the_end_of_a_job_is_its_result_or_its_error() -> None:
    with ThreadPoolExecutor(1) as thread:
        assert await end_of(thread.submit(sum, TOKENS)) == 6
        with pytest.raises(TypeError):
            await end_of(thread.submit(sum, 1))  # type: ignore[arg-type]


async def test_a_job_goes_on_when_nobody_waits_for_it(
    caplog: pytest.LogCaptureFixture,
) -> None:
    job: Future[int] = Future()
    waiting = asyncio.create_task(end_of(job))
    await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.wait([waiting])
    assert waiting.cancelled()
    assert not job.cancelled()
    job.set_result(1)
    assert await end_of(job) == 1
    assert not caplog.records  # as loops log what is raised in them


def test_a_job_may_end_after_the_loop_of_who_waited(caplog: pytest.LogCaptureFixture) -> None:
    job: Future[int] = Future()

    async def wait() -> None:
        waiting = asyncio.create_task(end_of(job))
        await asyncio.sleep(0)
        waiting.cancel()

    asyncio.run(wait())
    job.set_result(1)
    assert not caplog.records  # nor do callbacks raise
