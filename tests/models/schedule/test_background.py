"""What is in the background is served while nobody else waits, and gives way to all others."""

from __future__ import annotations

import pytest

from models.errors import Busy
from models.request import BACKGROUND, User
from models.schedule.admission import Admission, Place
from models.schedule.crowd import Demand, who_yields
from models.schedule.shares import Claim, Shares
from tests.models.schedule.claims import claim
from tests.models.schedule.simulated import Simulated

BATCH, OTHER_BATCH = User(BACKGROUND, "a"), User(BACKGROUND, "b")
CLIENT = User("a")
MOST = Demand(10, 1000)
ONE = Demand(1, 10)


def waiting(*users: User) -> Shares[Claim]:
    made: Shares[Claim] = Shares(10)
    for user in users:
        made.push(claim(*user))
    return made


def test_its_turn_comes_when_nobody_else_waits() -> None:
    shares = waiting(BATCH, BATCH, CLIENT, CLIENT, User("b"))
    order = [shares.pop().user.background for _ in range(5)]
    assert order == [False, False, False, True, True]


def test_being_served_while_others_were_idle_costs_them_nothing() -> None:
    shares = waiting(*[BATCH] * 5)
    for _ in range(4):
        shares.settle(shares.pop(), 1000)
    shares.push(claim(*CLIENT))
    assert shares.pop().user == CLIENT
    assert shares.pop().user == BATCH


def test_several_users_of_it_take_turns() -> None:
    shares = waiting(*[BATCH] * 4, OTHER_BATCH)
    assert OTHER_BATCH in [shares.pop().user for _ in range(2)]


def test_all_of_it_gives_way_before_anybody_else() -> None:
    queue = waiting(*[User("c")] * 8, BATCH, OTHER_BATCH)
    yielding = who_yields(queue.all, CLIENT, Demand(2, 20), MOST)
    assert sorted(one.user for one in yielding) == [BATCH, OTHER_BATCH]
    yielding = who_yields(queue.all, CLIENT, Demand(3, 30), MOST)
    assert [one.user for one in yielding][2:] == [User("c")]


def test_it_gives_way_to_who_has_most_of_the_queue() -> None:
    queue = waiting(*[CLIENT] * 9, BATCH)
    assert [one.user for one in who_yields(queue.all, CLIENT, ONE, MOST)] == [BATCH]


def test_nobody_gives_way_to_it_but_itself() -> None:
    assert who_yields(waiting(*[CLIENT] * 10).all, BATCH, ONE, MOST) == []
    queue = waiting(*[CLIENT] * 7, *[BATCH] * 3)
    assert [one.user for one in who_yields(queue.all, OTHER_BATCH, ONE, MOST)] == [BATCH]
    assert who_yields(queue.all, BATCH, ONE, MOST) == []


async def test_a_client_overtakes_all_of_a_batch_that_waits() -> None:
    admission = Admission(max_running=1, max_waiting=3, max_waiting_tokens=100)
    running, *lines = (admission.enter(1, 1, user=BATCH)[0] for _ in range(4))
    [client] = admission.enter(1, 1, user=CLIENT)
    with pytest.raises(Busy):
        await lines[-1].wait()
    admission.leave(running, 10)
    assert client.running
    assert not any(line.running for line in lines)


async def test_a_full_queue_of_clients_refuses_a_batch() -> None:
    admission = Admission(max_running=1, max_waiting=1, max_waiting_tokens=100)
    places: list[Place] = [admission.enter(1, 1, user=CLIENT)[0] for _ in range(2)]
    with pytest.raises(Busy):
        admission.enter(1, 1, user=BATCH)
    assert not any(place.left for place in places)


def test_its_prompts_are_read_behind_those_that_came_later() -> None:
    machine = Simulated(step_s=0.1)
    for _ in range(4):
        machine.arrive(50, 2000)
    machine.run(30)
    line = machine.arrive(2000, background=True)
    machine.run(3)
    clients = [machine.arrive(1000) for _ in range(2)]
    machine.run(600)
    assert max(machine.first[client] for client in clients) < machine.first[line]


def test_it_loses_its_blocks_to_who_came_later() -> None:
    machine = Simulated(blocks=64, slots=8)
    lines = [machine.arrive(120, 400, background=True) for _ in range(3)]
    machine.run(100)
    assert sum(line.slot is not None for line in lines) > 1
    client = machine.arrive(500, 200)
    machine.run()
    assert machine.scheduler.live == {}
    assert machine.done.index(client) == 0
    assert machine.preempted <= {*lines}
    machine.scheduler.pool.check()
