from __future__ import annotations

import asyncio

import pytest

from models.errors import Busy
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
