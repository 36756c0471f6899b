from __future__ import annotations

import random

from hypothesis import given
from hypothesis import strategies as st

from models.schedule.lookup import CATCH_UP, Drafting, Lookup, Speculation


def drafts(tokens: list[int], most: int = 4, ngram: int = 2) -> tuple[int, ...]:
    return Speculation(Drafting(most, ngram)).draft(tokens, 99)


def test_what_followed_the_same_tokens_is_guessed() -> None:
    assert drafts([1, 2, 3, 4, 5, 6, 0, 1, 2]) == (3, 4, 5, 6)
    assert drafts([1, 2, 3, 4, 5, 6, 0, 2, 1]) == ()


def test_the_latest_place_is_followed_unless_an_earlier_match_still_holds() -> None:
    assert drafts([1, 2, 7, 0, 1, 2, 8, 0, 1, 2]) == (8, 0, 1, 2)
    assert drafts([5, 1, 2, 7, 9, 1, 2, 8, 6, 1, 2])[0] == 8
    assert drafts([5, 1, 2, 7, 9, 1, 2, 8, 0, 5, 1, 2])[0] == 7


def test_a_loop_goes_round() -> None:
    assert drafts([3, 3, 3, 3]) == (3, 3, 3, 3)
    assert drafts([1, 2, 1, 2, 1]) == (2, 1, 2, 1)


def test_no_more_than_asked_for() -> None:
    speculation = Speculation(Drafting(8, 1))
    assert speculation.draft([1, 1, 1], 2) == (1, 1)
    assert speculation.draft([1, 1, 1], 0) == ()


def test_drafts_grow_while_they_hold() -> None:
    speculation = Speculation(Drafting(16, 1))
    tokens, lengths = [1] * 5, []
    for _ in range(5):
        draft = speculation.draft(tokens, 99)
        lengths.append(len(draft))
        tokens += [*draft, 1]
        speculation.judge(len(draft), len(draft), len(tokens))
    assert lengths == [4, 8, 16, 16, 16]


def test_after_failures_there_are_few_drafts_but_they_are_tried_again() -> None:
    speculation = Speculation(Drafting(8, 1))
    tokens, drafted = [1, 1], 0
    for _ in range(1000):
        draft = speculation.draft(tokens, 99)
        drafted += len(draft)
        tokens.append(1)
        if draft:
            speculation.judge(len(draft), 0, len(tokens))
    assert 8 <= drafted <= 20


def test_a_long_prompt_is_read_in_pieces() -> None:
    lookup = Lookup(1)
    tokens = [7] * (2 * CATCH_UP + 1)
    assert [lookup.follow(tokens) for _ in range(3)] == [False, False, True]
    assert lookup.guess(tokens, 2) == (7, 7)


@given(st.integers(0, 10**6), st.integers(1, 4))
def test_it_does_not_matter_in_which_pieces_tokens_come(seed: int, ngram: int) -> None:
    chance = random.Random(seed)
    tokens = [chance.randrange(3) for _ in range(60)]
    known = 0
    lookup, whole = Lookup(ngram), Lookup(ngram)
    while known < len(tokens):
        known += chance.randrange(1, 9)
        held = lookup.follow(tokens[:known])
    assert whole.follow(tokens) == held
    if held:
        guess = whole.guess(tokens, 5)
        assert guess == lookup.guess(tokens, 5)
        before = tokens[-ngram:]
        places = [i for i in range(ngram, 60) if tokens[i - ngram : i] == before]
        assert any(guess[0] == tokens[i] for i in places)
