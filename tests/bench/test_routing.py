from __future__ import annotations

from itertools import pairwise

from tests.bench.prompts import Prompts
from tests.bench.routing import HEADER, PREFIX, SIDES, Load, Seen, row
from tests.bench.scenarios import Course
from tests.bench.sse import Stream

WORDS = Prompts.of_words()


def test_prompts_of_a_group_share_their_prefix() -> None:
    load = Load("some", groups=3, requests=40)
    prompts = [prompt for (prompt,) in load.conversations(WORDS, "seed")]
    assert len(set(prompts)) == 40
    assert {WORDS.count(prompt) for prompt in prompts} == {PREFIX + load.own}
    assert len({tuple(prompt.split()[:PREFIX]) for prompt in prompts}) == 3


def test_a_conversation_goes_on_from_turn_to_turn() -> None:
    load = Load("some", groups=1, requests=8, turns=4, own=16)
    for prompts in load.conversations(WORDS, "seed"):
        assert len(prompts) == 4
        for before, after in pairwise(prompts):
            assert after.startswith(f"{before} ")
            assert WORDS.count(after) == WORDS.count(before) + load.own


def test_a_row_compares_both_sides() -> None:
    seen = {side: Seen() for side in SIDES}
    for cached, one in enumerate(seen.values(), 1):
        stream = Stream(1.0, [1.0 + 0.1 / cached], 2.0, 8 * cached, 10, cached_tokens=5 * cached)
        one.add(Course([stream], [], 0.0, 2.0))
    line = row(Load("some", 1, 1), seen)
    assert line == "| some | 50%, 100% | 100, 50 | 0.50 | 4, 8 | 2.00 |"
    assert line.count("|") == HEADER.splitlines()[0].count("|")
