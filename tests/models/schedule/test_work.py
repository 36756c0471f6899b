from __future__ import annotations

import pytest

from models.schedule.step_time import Load, StepTime
from models.schedule.work import Work

FIXED, ROW, TOKEN = 0.01, 0.002, 0.0005
FULL = 8


def learned() -> StepTime:
    """Steps take what they take."""
    time = StepTime()
    for rows in range(9):
        for tokens in (0, 100, 500):
            time.observe(Load(rows, tokens), FIXED + ROW * rows + TOKEN * tokens)
    return time


def test_a_replica_that_does_all_it_can_is_busy_all_the_time() -> None:
    work = Work(learned())
    for _ in range(100):
        work.did(Load(FULL))
    assert work.take(FULL, 0) == pytest.approx(100 * (FIXED + ROW * FULL), rel=0.1)
    assert work.take(FULL, 0) == 0


def test_a_single_sequence_is_its_share_of_full_steps() -> None:
    work = Work(learned())
    for _ in range(100):
        work.did(Load(1))
    assert work.take(FULL, 0) == pytest.approx(100 * (FIXED + ROW * FULL) / FULL, rel=0.1)


def test_prompts_are_what_they_add() -> None:
    work = Work(learned())
    work.did(Load(1, 400))
    work.did(Load(1, 100))
    share = 2 * (FIXED + ROW * FULL) / FULL
    assert work.take(FULL, 0) == pytest.approx(share + 500 * TOKEN, rel=0.15)


def test_what_a_request_usually_takes() -> None:
    work = Work(learned())
    assert work.usual(0) == 0
    for _ in range(100):
        work.did(Load(FULL))
    whole = work.take(FULL, 0)
    assert work.usual(FULL) == pytest.approx(whole / (FULL / 2))  # none has ended yet
    work.take(FULL, 16)
    assert work.usual(0) == pytest.approx(whole / 16, rel=0.02)


def test_nothing_is_known_before_the_first_step() -> None:
    work = Work(StepTime())
    assert (work.take(FULL, 0), work.usual(4)) == (0, 0)
