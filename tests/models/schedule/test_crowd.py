from __future__ import annotations

from collections.abc import Sequence

import pytest

from models.request import User
from models.schedule.crowd import Demand, who_yields
from models.schedule.shares import Claim, Shares
from tests.models.schedule.claims import claim

A, B, C = User("a"), User("b"), User("c")
MOST = Demand(10, 1000)
ONE = Demand(1, 10)


def waiting(**counts: int) -> Shares[Claim]:
    """So many requests of each key, of ten tokens each."""
    made: Shares[Claim] = Shares(10)
    for key, count in counts.items():
        for _ in range(count):
            made.push(claim(key))
    return made


def named(**counts: int) -> Shares[Claim]:
    """The same of users of one key."""
    made: Shares[Claim] = Shares(10)
    for name, count in counts.items():
        for _ in range(count):
            made.push(claim("k", name))
    return made


def users(claims: Sequence[Claim]) -> list[User]:
    return [one.user for one in claims]


def test_the_last_of_whoever_has_most_gives_way() -> None:
    queue = waiting(a=7, b=3)
    [yielding] = who_yields(queue.all, C, ONE, MOST)
    assert yielding is queue.all.member("a").member("").claims[-1]


@pytest.mark.parametrize(("mine", "theirs"), [(0, 10), (4, 6), (3, 7)])
def test_who_has_less_gets_room(mine: int, theirs: int) -> None:
    assert users(who_yields(waiting(a=theirs, b=mine).all, B, ONE, MOST)) == [A]


@pytest.mark.parametrize(("mine", "theirs"), [(10, 0), (5, 5), (6, 4)])
def test_nobody_gives_way_to_who_has_as_much(mine: int, theirs: int) -> None:
    assert who_yields(waiting(a=theirs, b=mine).all, B, ONE, MOST) == []


def test_room_gained_is_kept() -> None:
    """Whoever gave way does not get its place back by asking again."""
    queue = waiting(a=10)
    while yielding := who_yields(queue.all, B, ONE, MOST):
        queue.remove(yielding[0])
        queue.push(claim("b"))
    assert queue.all.member("b").waiting == 5
    assert who_yields(queue.all, A, ONE, MOST) == []


def test_users_of_one_key_give_way_to_each_other() -> None:
    assert users(who_yields(named(x=8, y=2).all, User("k", "z"), ONE, MOST)) == [User("k", "x")]
    assert who_yields(named(x=8, y=2).all, User("k", "x"), ONE, MOST) == []


def test_naming_users_gains_nothing_beside_other_keys() -> None:
    queue = waiting(a=5)
    for i in range(5):
        queue.push(claim("k", f"user {i}"))
    assert who_yields(queue.all, User("k", "another"), ONE, MOST) == []
    queue = waiting(a=4)
    for i in range(6):
        queue.push(claim("k", f"user {i % 4}"))
    assert users(who_yields(queue.all, A, ONE, MOST))[0].key == "k"


def test_as_many_give_way_as_are_needed_and_no_more() -> None:
    queue = waiting(a=8)
    assert len(who_yields(queue.all, B, Demand(3, 10), MOST)) == 1
    assert len(who_yields(queue.all, B, Demand(4, 10), MOST)) == 2
    assert who_yields(queue.all, B, Demand(6, 10), MOST) == []  # it would have more than a


def test_tokens_count_like_sequences() -> None:
    """By what fills more of the queue."""
    queue = waiting(b=5)
    for _ in range(2):
        queue.push(claim("a", tokens=450))
    assert users(who_yields(queue.all, C, Demand(1, 100), MOST)) == [A]
    assert who_yields(queue.all, C, Demand(1, 600), MOST) == []


def test_a_request_goes_whole_and_only_before_it_has_begun() -> None:
    queue: Shares[Claim] = Shares(10)
    both = [claim("a", tokens=0 if i else 10, due=0.0) for i in range(2)]
    begun = [claim("a", tokens=0 if i else 10, due=1.0) for i in range(6)]
    for request in (both, begun):
        for one in request:
            one.fellows = request
            queue.push(one)
    most = Demand(8, 1000)
    assert who_yields(queue.all, B, ONE, most) == begun
    queue.remove(begun[-1])
    assert who_yields(queue.all, B, Demand(2, 10), most) == both
    queue.remove(both[0])
    assert who_yields(queue.all, B, Demand(3, 10), most) == []


def test_where_nobody_waits_nobody_gives_way() -> None:
    assert who_yields(waiting().all, A, Demand(11, 10), MOST) == []
    assert who_yields(waiting().all, A, ONE, Demand(0, 0)) == []
