from __future__ import annotations

import pytest

from models.mock import MockEngine
from tests.bench.fairness import TOGETHER, asks, beside, measure
from tests.bench.prompts import Prompts
from tests.deployments.serving import listening, make_app

WORDS = Prompts.counted_by("words")


def test_both_are_one_user_and_two_in_turns() -> None:
    engine = MockEngine("mock", inter_token_s=0.002)
    with listening(make_app(engine)) as url:
        lines = list(measure(url, "mock", WORDS, requests=20, rounds=2, every_s=0.02))
    assert [line.split(" | ")[0] for line in lines[2:]] == ["| one user", "| two users"]
    assert {line.count("|") for line in lines} == {7}
    assert len({request.user for request in engine.requests}) == 3


async def test_an_answer_that_is_not_whole_fails_the_measurement() -> None:
    engine = MockEngine("mock", failure="failed", fail_after=2)
    with listening(make_app(engine)) as url, pytest.RaisesGroup(RuntimeError, allow_unwrapped=True):
        await beside(asks(url, "mock", TOGETHER), WORDS, 1, 0.05)
