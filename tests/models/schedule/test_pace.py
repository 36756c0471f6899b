"""Prompts beside answers, on machines that take simulated time."""

from __future__ import annotations

import statistics

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from models.schedule.pace import ALONE_SECONDS, ALONE_TIMES, FIRST_TOKENS, LEAST_TOKENS, Pace
from models.schedule.step_time import Load
from tests.models.schedule.simulated import Simulated


def streams(machine: Simulated, count: int, answer: int = 400) -> None:
    for _ in range(count):
        machine.arrive(100, answer)
    machine.run(60)


def mixed(machine: Simulated, since: int = 0) -> list[float]:
    return [s for load, s in machine.steps[since:] if load.rows and load.tokens]


@settings(max_examples=40, deadline=None)
@given(
    step=st.floats(1e-3, 3e-2),
    row=st.floats(1e-5, 5e-3),
    token=st.floats(1e-5, 2e-3),
    pair=st.floats(0, 5e-4),
    noise=st.sampled_from((0.0, 0.1)),
    outliers=st.sampled_from((0.0, 0.03)),
    rows=st.integers(1, 12),
)
def test_steps_take_as_long_as_asked(
    step: float, row: float, token: float, pair: float, noise: float, outliers: float, rows: int
) -> None:
    machine = Simulated(step, row, token, pair, noise, outliers, step_s=0.15)
    streams(machine, rows)
    since = len(machine.steps)
    for _ in range(4):
        machine.arrive(1000)
    machine.run()
    took = mixed(machine, since)
    if len(took) < 12:
        return  # it is so fast that a few steps read all of them
    least = max(0.15, 1.5 * (step + row * rows) + LEAST_TOKENS * token)
    low, high = (0.3, 4.0) if outliers else (0.8, 1.2)  # of a few steps, one may be far out
    assert low * 0.15 <= statistics.median(took[4:]) <= high * least


def test_by_default_steps_follow_the_machine() -> None:
    slow, fast = Simulated(), Simulated(0.002, 0.0001, 0.00002, 0.0)
    between = Simulated(0.02, 0.001, 0.0001, 0.0)
    for machine in (slow, fast, between):
        streams(machine, 8)
        machine.arrive(2000)
        machine.arrive(2000)
        machine.run(20)
    assert statistics.median(mixed(slow)) == pytest.approx(0.17, rel=0.15)
    assert statistics.median(mixed(between)) == pytest.approx(0.028 + 0.0512, rel=0.15)
    assert statistics.median(mixed(fast)) < 0.06


def test_where_nobody_decodes_one_step_reads_a_lone_prompt() -> None:
    machine = Simulated(step_s=0.05)
    for _ in range(3):
        lone = machine.arrive(1000)
        machine.run()
    assert [load.tokens for load, _ in machine.steps] == [
        FIRST_TOKENS,
        1000 - FIRST_TOKENS,
        1000,
        1000,
    ]
    assert machine.first[lone] == machine.now


@pytest.mark.parametrize("step", [0.1, 1.0])
def test_where_tokens_take_long_no_step_does(step: float) -> None:
    """Who comes meanwhile waits for its end, and so does the check that all goes on."""
    machine = Simulated(step=step, token=0.02)
    for _ in range(2):
        machine.arrive(1000)
        machine.run()
    took = [seconds for _, seconds in machine.steps[8:-1]]
    assert max(took) < 1.3 * max(ALONE_SECONDS, ALONE_TIMES * step)
    assert len(machine.steps) < 45


def test_of_several_prompts_the_first_does_not_wait_for_all() -> None:
    machine = Simulated(step_s=0.2)
    machine.arrive(100)
    machine.run()
    began = machine.now
    several = [machine.arrive(100, 50) for _ in range(8)]
    machine.run()
    firsts = [machine.first[one] - began for one in several]
    assert firsts == sorted(firsts)
    assert firsts[0] < 0.3
    assert firsts[-1] < 2


def test_prompts_get_their_share_however_long_decoding_takes() -> None:
    machine = Simulated(row=0.02, step_s=0.05)
    streams(machine, 20)
    began = machine.now
    late = machine.arrive(1000)
    machine.run()
    # Decoding alone takes 420 ms a step: a third of the time goes to the prompt.
    assert machine.first[late] - began < 4.5


def test_a_step_of_one_row_more_is_expected_to_be_as_long() -> None:
    pace = Pace(0.1)
    assert pace.beside(3) > 0
    pace.time.observe(Load(3, 100, 5), 0.12)
    for _ in range(50):
        pace.time.observe(Load(3), 0.02)
    assert pace.target(3) == 0.1
    assert pace.beside(3) >= pace.beside(30)
    assert pace.beside(10_000) >= LEAST_TOKENS
