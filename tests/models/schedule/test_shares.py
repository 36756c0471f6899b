from __future__ import annotations

import random
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from models.request import ANYBODY, User
from models.schedule.shares import KNOWN, Claim, Party, Shares
from tests.models.schedule.claims import Length, Replica, claim, fixed, varied

A, B, C = User("a"), User("b"), User("c")


def shares(*claims: Claim, most: int = 256) -> Shares[Claim]:
    made: Shares[Claim] = Shares(most)
    for one in claims:
        made.push(one)
    return made


def drained(queue: Shares[Claim], tokens: int = 30) -> list[Claim]:
    """All who wait in their order; each runs by itself, and takes so many tokens."""
    order = []
    while queue.all.waiting:
        order.append(queue.pop())
        queue.settle(order[-1], tokens)
    return order


def parties(party: Party[Claim]) -> int:
    return 1 + sum(parties(member) for member in party.members.values())


def test_a_single_request_is_not_behind_anothers_hundreds() -> None:
    many, one = [claim("a") for _ in range(500)], claim("b")
    queue = shares(*many)
    first = [queue.pop() for _ in range(32)]
    queue.push(one)
    queue.settle(first[0], 100)
    assert queue.pop() is one
    assert [*first, *drained(queue)] == many


def test_equals_take_turns() -> None:
    queue = shares(*(claim(key) for key in "aaabbbccc"))
    assert [one.user.key for one in drained(queue)] == [*"abcabcabc"]


def test_tokens_count_not_requests() -> None:
    """Of two who both wait, one has prompts three times as long."""
    long = [claim("a", tokens=300) for _ in range(90)]
    short = [claim("b", tokens=100) for _ in range(90)]
    queue = shares(*long, *short)
    first = []
    for _ in range(40):
        first.append(queue.pop())
        queue.settle(first[-1], first[-1].tokens)
    assert Counter(one.user for one in first) == {A: 10, B: 30}


def test_keys_have_equal_shares_however_many_users_they_name() -> None:
    crowd = [claim("a", f"user {i}") for i in range(100)]
    lone = [claim("b") for _ in range(100)]
    first = drained(shares(*crowd, *lone))[:100]
    assert Counter(one.user.key for one in first) == {"a": 50, "b": 50}


def test_users_of_a_key_have_equal_shares_of_it() -> None:
    waiting = [claim("a", "x") for _ in range(50)] + [claim("a", "y") for _ in range(10)]
    first = drained(shares(*waiting, *(claim("b") for _ in range(50))))[:40]
    assert Counter(one.user for one in first) == {User("a", "x"): 10, User("a", "y"): 10, B: 20}


def test_whoever_names_nobody_is_one_user() -> None:
    first = drained(shares(*(claim() for _ in range(20)), *(claim("", "x") for _ in range(20))))
    assert Counter(one.user.name for one in first[:20]) == {"": 10, "x": 10}


def test_to_have_been_idle_is_worth_nothing() -> None:
    """Ten others had 200 turns each; then one comes who had none, and gets no more than they."""
    others = [[claim(str(i)) for _ in range(230)] for i in range(10)]
    queue = shares(*(one for same in others for one in same))
    for _ in range(2000):
        queue.settle(queue.pop(), 30)
    for _ in range(30):
        queue.push(claim("late"))
    first = drained(queue)[:110]
    assert Counter(one.user.key for one in first)["late"] in (10, 11)


def test_what_is_settled_late_is_no_credit_for_who_has_begun_anew() -> None:
    queue = shares(claim("a", tokens=1000), *(claim("b") for _ in range(300)))
    [slow] = [one for one in (queue.pop(), queue.pop()) if one.user == A]
    for _ in range(200):
        queue.settle(queue.pop(), 30)
    queue.push(claim("a"))
    before = queue.all.member("a").served
    queue.settle(slow, 0)
    assert queue.all.member("a").served == before


def test_those_who_leave_before_a_step_teach_nothing_of_what_is_usual() -> None:
    long = [claim("a", tokens=1000) for _ in range(8)]
    queue = shares(*long, *(claim("a", tokens=100) for _ in range(8)))
    for one in long:
        assert queue.pop() is one
        queue.settle(one, 0)
    for _ in range(8):
        queue.push(claim("b", tokens=100))
    assert Counter(queue.pop().user for _ in range(8)) == {A: 4, B: 4}


@pytest.mark.parametrize("slots", [1, 8])
def test_nobody_starves_beside_endless_newcomers(slots: int) -> None:
    """One who returns is served in spite of all who come once, each with a name of its own."""
    returning = User("a", "x")
    replica = Replica(slots, {returning: (1, fixed(100)), B: (20, fixed(100))})
    for i in range(2000):
        replica.arrive(User("a", f"new {i}"))
        replica.run(2 * 100 // slots)  # the other half is the other key's
    waits = replica.served.waits[returning]
    assert len(waits) > 5
    assert max(waits) <= 2 * 100 * (256 + slots) * 1.1 / slots


def test_the_virtual_time_bounds_how_long_newcomers_go_first() -> None:
    """Somebody who has had more than all others waits, but not for ever."""
    queue = shares(claim("a", tokens=1000), most=10)
    queue.settle(queue.pop(), 1000)
    running = claim("b")
    queue.push(running)
    assert queue.pop() is running
    patient = claim("a")
    queue.push(patient)
    for i in range(10**5):
        queue.push(claim(f"new {i}"))
        if (chosen := queue.pop()) is patient:
            break
        queue.settle(chosen, 10)
    assert i < 1000 * 10


def test_who_has_gone_is_forgotten() -> None:
    queue = shares(claim("always"))
    kept = queue.pop()
    for i in range(10_000):
        one = claim(f"new {i}", str(i % 7), tokens=10)
        queue.push(one)
        assert queue.pop() is one
        queue.settle(one, 10)
        if i % 100 == 0:
            assert parties(queue.all) < 4 * max(KNOWN, 256)
    queue.settle(kept, 0)
    assert parties(queue.all) == 1


lengths = [(fixed(100), fixed(100)), (varied(100), varied(100)), (varied(1000), varied(30))]


@pytest.mark.parametrize(("one", "other"), lengths)
@pytest.mark.parametrize("slots", [1, 4, 32])
def test_shares_converge_whatever_the_lengths(slots: int, one: Length, other: Length) -> None:
    """What each was served differs by no more than what runs at a time."""
    replica = Replica(slots, {A: (100, one), B: (150, other)})
    tokens = replica.run(100_000).tokens
    assert tokens[A] == pytest.approx(tokens[B], rel=0.1)


@pytest.mark.parametrize("slots", [4, 32])
def test_a_light_user_hardly_waits_beside_heavy_ones(slots: int) -> None:
    users = {A: (200, varied(100)), B: (200, varied(100)), C: (1, varied(100))}
    waits = Replica(slots, users).run(50_000).waits
    assert max(waits[C]) < 500
    assert sum(waits[C]) / len(waits[C]) < 0.1 * sum(waits[A]) / len(waits[A])


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_a_lone_user_sees_but_the_order_of_due(data: st.DataObject) -> None:
    """By ``due``, equals in the order of their arrival; whatever leaves meanwhile."""
    queue, waiting, running = shares(), list[Claim](), list[Claim]()
    for _ in range(data.draw(st.integers(1, 40))):
        match data.draw(st.sampled_from(["push", "push", "pop", "remove", "settle"])):
            case "push":
                due = float(data.draw(st.integers(0, 5)))
                waiting.append(claim(due=due, tokens=data.draw(st.integers(0, 50))))
                waiting.sort(key=lambda one: one.due)
                queue.push(waiting[-1] if waiting[-1].due == due else _last(waiting, due))
            case "pop" if waiting:
                running.append(queue.pop())
                assert running[-1] is waiting.pop(0)
            case "remove" if waiting:
                queue.remove(waiting.pop(data.draw(st.integers(0, len(waiting) - 1))))
            case "settle" if running:
                queue.settle(running.pop(), data.draw(st.integers(0, 100)))
    assert drained(queue) == waiting


def _last(waiting: list[Claim], due: float) -> Claim:
    return [one for one in waiting if one.due == due][-1]


@pytest.mark.parametrize("seed", range(20))
def test_nothing_is_lost_whatever_comes_and_goes(seed: int) -> None:
    chance = random.Random(seed)
    queue, waiting, running = shares(), list[Claim](), list[Claim]()
    for _ in range(1000):
        if chance.random() < 0.5:
            waiting.append(claim(chance.choice("ab"), chance.choice("xyz"), chance.randrange(99)))
            queue.push(waiting[-1])
        elif waiting and chance.random() < 0.6:
            running.append(queue.pop())
            waiting.remove(running[-1])
        elif waiting and chance.random() < 0.3:
            queue.remove(waiting.pop(chance.randrange(len(waiting))))
        elif running:
            queue.settle(running.pop(chance.randrange(len(running))), chance.randrange(200))
        assert queue.all.waiting == len(waiting)
        assert queue.all.waiting_tokens == sum(one.tokens for one in waiting)
        assert queue.all.held == len(waiting) + len(running)
    assert set(drained(queue)) == set(waiting)
    for one in running:
        queue.settle(one, 1)
    assert parties(queue.all) == 1


def test_choices_of_one_request_are_each_a_claim() -> None:
    several = [claim("a", tokens=0 if i else 10, due=0.0) for i in range(5)]
    first = drained(shares(*several, *(claim("b", due=1.0) for _ in range(5))))
    assert [one.user.key for one in first[:4]] == ["a", "b", "a", "b"]


def test_nobody_at_all_is_a_user_too() -> None:
    queue = shares(claim(*ANYBODY))
    assert queue.pop().user == ANYBODY
