"""Whose prompt is computed when."""

from __future__ import annotations

import random

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.models.schedule.simulated import Simulated


def busy(**settings: float) -> Simulated:
    """A machine with streams that decode, and an estimate of its steps."""
    machine = Simulated(step_s=0.1, **settings)  # type: ignore[arg-type]
    for _ in range(4):
        machine.arrive(50, 2000)
    machine.run(30)
    return machine


def test_prompts_of_one_length_are_read_as_they_came() -> None:
    machine = busy()
    prompts = [machine.arrive(1000) for _ in range(4)]
    machine.run(400)
    firsts = [machine.first[one] for one in prompts]
    assert firsts == sorted(firsts)
    assert firsts[0] - firsts[-1] < -1


def test_a_short_prompt_does_not_wait_for_a_long_one() -> None:
    machine = busy()
    long = machine.arrive(3000)
    machine.run(3)
    began = machine.now
    short = machine.arrive(30)
    machine.run(200)
    assert machine.first[short] - began < 0.3
    assert machine.first[long] > machine.first[short]


def test_short_prompts_cannot_hold_up_a_long_one_for_ever() -> None:
    machine = busy()
    long = machine.arrive(1000)
    steps = 0
    while long not in machine.first:
        machine.arrive(100, 1)
        machine.run(1)
        steps += 1
    # It may be overtaken by as many tokens as it has itself, and by no more.
    assert steps < 60


def test_short_prompts_cannot_keep_all_blocks_to_themselves() -> None:
    machine = Simulated(blocks=64, slots=8)
    for _ in range(6):
        machine.arrive(100, 30)
    machine.run(5)
    large = machine.arrive(900)
    steps = 0
    while large not in machine.first:
        machine.arrive(100, 30)
        machine.run(1)
        steps += 1
    assert steps < 200


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 200), st.sampled_from((110, 4096)))
def test_everybody_is_served_whatever_comes_when(seed: int, step_tokens: int, blocks: int) -> None:
    chance = random.Random(seed)
    machine = Simulated(
        step=chance.choice((0.0, 0.01)),
        noise=0.2,
        outliers=0.05,
        step_tokens=step_tokens,
        slots=6,
        blocks=blocks,
    )
    everybody = []
    for _ in range(25):
        length = chance.choice((1, 20, 300, 1500))
        everybody.append(machine.arrive(length, chance.randrange(1, 60)))
        machine.run(chance.randrange(20))
    machine.run()
    assert set(machine.first) == set(everybody)
    machine.scheduler.pool.check()
    assert max(load.rows + load.tokens for load, _ in machine.steps) <= step_tokens
