from __future__ import annotations

import asyncio

import pytest

from models.errors import Busy
from models.request import User
from models.schedule.admission import Admission


async def test_places_run_up_to_the_limit_then_wait_in_order() -> None:
    admission = Admission(max_running=2, max_waiting=2, max_waiting_tokens=100)
    first, second, third, fourth = [admission.enter(1, 10)[0] for _ in range(4)]
    assert [place.running for place in (first, second, third, fourth)] == [True, True, False, False]
    assert (admission.running, admission.waiting, admission.waiting_tokens) == (2, 2, 20)
    admission.leave(first)
    await third.wait()
    assert not fourth.running


async def test_too_many_waiting_are_turned_away_and_take_nothing() -> None:
    admission = Admission(max_running=1, max_waiting=1, max_waiting_tokens=100)
    admission.enter(1, 10)
    with pytest.raises(Busy) as refused:
        admission.enter(2, 10)
    assert refused.value.retry_after >= 1
    assert admission.waiting == 0
    admission.enter(1, 10)


async def test_waiting_tokens_are_limited_unless_nobody_waits() -> None:
    admission = Admission(max_running=1, max_waiting=9, max_waiting_tokens=100)
    admission.enter(1, 10)
    admission.enter(1, 1000)
    with pytest.raises(Busy, match="1000 prompt tokens"):
        admission.enter(1, 10)


async def test_leaving_the_queue_makes_room_and_leaving_twice_changes_nothing() -> None:
    admission = Admission(max_running=1, max_waiting=1, max_waiting_tokens=100)
    running, waiting = admission.enter(2, 10)
    admission.leave(waiting)
    admission.leave(waiting)
    assert (admission.waiting, admission.waiting_tokens) == (0, 0)
    admission.leave(running)
    admission.leave(running)
    assert admission.running == 0


async def test_a_cancelled_wait_leaves_the_place_to_its_owner() -> None:
    admission = Admission(max_running=1, max_waiting=2, max_waiting_tokens=100)
    running, waiting, last = (admission.enter(1, 1)[0] for _ in range(3))
    task = asyncio.create_task(waiting.wait())
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.wait([task])
    admission.leave(running)
    assert waiting.running
    admission.leave(waiting)
    assert last.running


async def test_retry_after_follows_the_drain_rate() -> None:
    admission = Admission(max_running=1, max_waiting=50, max_waiting_tokens=100)
    assert admission.retry_after() == 1.0
    for _ in range(10):
        admission.leave(admission.enter(1, 1)[0])
    admission.enter(1, 1)
    for _ in range(40):
        admission.enter(1, 1)
    assert 1.0 < admission.retry_after() <= 41 / 10 * 1.5


async def test_a_lower_priority_goes_first_and_equals_keep_their_order() -> None:
    admission = Admission(max_running=1, max_waiting=9, max_waiting_tokens=100)
    running = admission.enter(1, 1)[0]
    late, first, second, early = [admission.enter(1, 1, priority)[0] for priority in (9, 0, 0, -9)]
    for place in (early, first, second, late):
        admission.leave(running)
        assert place.running
        running = place


async def test_waiting_makes_up_for_priority() -> None:
    """One second a unit: whoever came that much earlier goes first."""
    admission = Admission(max_running=1, max_waiting=9, max_waiting_tokens=100)
    running = admission.enter(1, 1)[0]
    patient = admission.enter(1, 1, 5)[0]
    patient.due -= 4.5
    urgent, hasty = admission.enter(1, 1, 1)[0], admission.enter(1, 1, 0)[0]
    admission.leave(running)
    assert hasty.running
    admission.leave(hasty)
    assert patient.running
    assert not urgent.running


async def test_users_take_turns() -> None:
    admission = Admission(max_running=1, max_waiting=99, max_waiting_tokens=10**6)
    many = [admission.enter(1, 10, user=User("a"))[0] for _ in range(50)]
    [one] = admission.enter(1, 10, user=User("b"))
    admission.leave(many[0], 30)
    assert one.running
    admission.leave(one, 30)
    assert many[1].running


async def test_priority_means_nothing_between_users() -> None:
    admission = Admission(max_running=1, max_waiting=99, max_waiting_tokens=100)
    running, *_, urgent = (admission.enter(1, 1, p, User("a"))[0] for p in (0, 5, 5, -9))
    [late] = admission.enter(1, 1, 9, User("b"))
    for place in (late, urgent):
        admission.leave(running, 10)
        assert place.running
        running = place


async def test_what_was_computed_is_what_counts() -> None:
    """One user's answers are long, the other's are found in the cache: that one goes on."""
    admission = Admission(max_running=1, max_waiting=99, max_waiting_tokens=10**6)
    tokens = {User("a"): 1000, User("b"): 10}
    places = [admission.enter(1, 10, user=user)[0] for user in tokens for _ in range(20)]
    ran = []
    for _ in range(24):
        [running] = [place for place in places if place.running]
        ran.append(running.user)
        places.remove(running)
        admission.leave(running, tokens[running.user])
    assert ran.count(User("b")) == 20


async def test_the_last_request_of_who_has_most_gives_way_where_the_queue_is_full() -> None:
    admission = Admission(max_running=1, max_waiting=4, max_waiting_tokens=1000)
    many = [admission.enter(1, 10, user=User("a"))[0] for _ in range(5)]
    [one] = admission.enter(1, 10, user=User("b"))
    with pytest.raises(Busy, match=r"4 requests are waiting.*Retry in") as refused:
        await many[-1].wait()
    assert refused.value.retry_after >= 1
    admission.leave(many[-1])
    assert (admission.waiting, admission.waiting_tokens) == (4, 40)
    admission.enter(1, 10, user=User("c"))
    with pytest.raises(Busy):
        admission.enter(1, 10, user=User("a"))
    for place in (*many, one):
        admission.leave(place, 5)
    assert (admission.running, admission.waiting, admission.waiting_tokens) == (1, 0, 0)


async def test_who_fills_the_queue_with_tokens_gives_way_too() -> None:
    admission = Admission(max_running=1, max_waiting=99, max_waiting_tokens=1000)
    _, first, last = (admission.enter(1, 450, user=User("a"))[0] for _ in range(3))
    [one] = admission.enter(1, 200, user=User("b"))
    with pytest.raises(Busy, match="900 prompt tokens"):
        await last.wait()
    assert not first.turn.done()
    assert not one.turn.done()


async def test_a_request_that_gives_way_goes_whole() -> None:
    admission = Admission(max_running=1, max_waiting=6, max_waiting_tokens=1000)
    running, *begun = admission.enter(3, 10, user=User("a"))
    choices = admission.enter(4, 10, user=User("a"))
    admission.enter(1, 10, user=User("b"))
    assert running.running
    assert [place.turn.done() for place in begun] == [False, False]
    for place in choices:
        with pytest.raises(Busy):
            await place.wait()
    assert admission.waiting == 3
