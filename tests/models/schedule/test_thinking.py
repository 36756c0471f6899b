"""A limit of reasoning, followed token by token, whatever a model says."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from models.request import MOST, ThinkingLimit
from models.schedule.thinking import Thinking

BEGIN, END, SPACE, CHANNEL, ANALYSIS, MESSAGE, START = range(7)
PROMPT = [BEGIN, 9, 9]  # of no account
Answer = list[int]

answers = st.lists(st.integers(0, 9), max_size=40)
budgets = st.integers(0, 6)


def once(tokens: int, *, opened: bool = False) -> ThinkingLimit:
    return ThinkingLimit(
        tokens=tokens,
        begin=(BEGIN,),
        end=END,
        ends=frozenset({END}),
        opened=opened,
        blank=frozenset({SPACE}),
    )


def channels(tokens: int) -> ThinkingLimit:
    ends = frozenset({END, CHANNEL, MESSAGE, START})
    begin = (CHANNEL, ANALYSIS, MESSAGE)
    return ThinkingLimit(tokens=tokens, begin=begin, end=END, ends=ends, again=True)


def answer(limit: ThinkingLimit, wished: Answer) -> Answer:
    """What comes of a model's wishes."""
    thinking, tokens = Thinking(limit, len(PROMPT)), [*PROMPT]
    for wish in wished:
        forced, banned = thinking.forced(tokens), thinking.banned(tokens)
        tokens.append(9 if wish in banned else wish if forced is None else forced)
    return tokens[len(PROMPT) :]


def thoughts(said: Answer, *, opened: bool = False) -> Answer:
    """What stands between the markers at the beginning."""
    if not opened:
        while said[:1] == [SPACE]:
            said = said[1:]
        if said[:1] != [BEGIN]:
            return []
        said = said[1:]
    return said[: said.index(END)] if END in said else said


def analyses(said: Answer) -> Answer:
    """What stands in all messages of that channel."""
    inside: Answer = []
    for i in range(3, len(said) + 1):
        if said[i - 3 : i] == [CHANNEL, ANALYSIS, MESSAGE]:
            ends = (k for k in range(i, len(said)) if said[k] in channels(0).ends)
            inside += said[i : next(ends, len(said))]
    return inside


@given(answers, budgets, st.booleans())
def test_no_more_is_thought_whatever_the_model_says(
    wished: Answer, budget: int, opened: bool
) -> None:
    said = answer(once(budget, opened=opened), wished)
    assert len(thoughts(said, opened=opened)) <= budget


@given(answers, budgets, st.booleans())
def test_all_else_is_the_models_own(wished: Answer, budget: int, opened: bool) -> None:
    said = answer(once(budget, opened=opened), wished)
    changed = [i for i, pair in enumerate(zip(said, wished, strict=True)) if pair[0] != pair[1]]
    assert len(changed) <= 1
    for i in changed:
        assert said[i] == END
        assert len(thoughts(said[:i], opened=opened)) == budget


@given(answers, budgets)
def test_nor_in_channels_of_which_there_may_be_many(wished: Answer, budget: int) -> None:
    said = answer(channels(budget), wished)
    assert len(analyses(said)) <= budget
    if len(analyses([*wished, 9])) <= budget and budget:
        assert said == wished


@given(answers, answers, budgets, st.sampled_from(["once", "opened", "channels"]))
def test_room_is_left_to_the_model_whatever_comes(
    before: Answer, after: Answer, budget: int, kind: str
) -> None:
    limit = channels(budget) if kind == "channels" else once(budget, opened=kind == "opened")
    thinking, tokens = Thinking(limit, len(PROMPT)), [*PROMPT, *answer(limit, before)]
    room = thinking.room(tokens)
    for token in after[:room]:
        assert thinking.forced(tokens) is None
        assert thinking.banned(tokens) == ()
        tokens.append(token)


def test_behind_the_reasoning_there_is_nothing_to_wait_for() -> None:
    for said in ([9], [SPACE, 9], [BEGIN, 9, END], [BEGIN, END]):
        assert Thinking(once(5), 3).room([*PROMPT, *said]) == MOST
    assert Thinking(once(5), 3).room([*PROMPT, SPACE, BEGIN, 9, 9]) == 3


@pytest.mark.parametrize("budget", [0, 1])
def test_at_the_limit_the_end_comes_next(budget: int) -> None:
    assert Thinking(once(budget, opened=True), 3).forced([*PROMPT, *[9] * budget]) == END
    assert Thinking(once(budget), 3).forced([*PROMPT, BEGIN, *[9] * budget]) == END
    assert Thinking(once(budget), 3).forced(PROMPT) is None


def test_a_spent_channel_is_not_opened_again() -> None:
    thinking, tokens = Thinking(channels(1), 0), [CHANNEL, ANALYSIS, MESSAGE, 9]
    assert thinking.forced(tokens) == END
    tokens += [END, START, 8, CHANNEL]
    assert thinking.forced(tokens) is None
    assert thinking.banned(tokens) == (ANALYSIS,)
