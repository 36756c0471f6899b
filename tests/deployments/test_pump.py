from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace

import pytest
from ray.exceptions import RayActorError

from deployments.calls import ReplicaLost
from deployments.lines.inlet import Box, Inlet
from deployments.lines.outlet import Reader
from deployments.pump import Call, Pump, merged, started
from deployments.wire import Item, Packed, pack
from models.errors import Failed, TimedOut
from models.events import FinishReason, Text
from models.time_left import TimeLeft
from models.token_engine import TokenEngine
from models.tokens import Admitted, TokenRequest, Tokens
from tests.models.asking import ask, serving
from tests.models.recall import expected, recall_model


class ListStream:
    """A producer that never waits for its reader."""

    def __init__(self, batches: Sequence[Sequence[Packed]]) -> None:
        self.cancelled = False
        self._batches = self._all(batches)

    async def __anext__(self) -> list[Packed]:
        return await anext(self._batches)

    def cancel(self) -> None:
        self.cancelled = True

    async def _all(self, batches: Sequence[Sequence[Packed]]) -> AsyncIterator[list[Packed]]:
        for batch in batches:
            await asyncio.sleep(0)
            yield list(batch)


class Lost(ListStream):
    """The replica is lost before it says anything."""

    async def __anext__(self) -> list[Packed]:
        raise RayActorError


class Silent(ListStream):
    """Says nothing more after all this."""

    async def __anext__(self) -> list[Packed]:
        try:
            return await super().__anext__()
        except StopAsyncIteration:
            return await asyncio.Event().wait() and []


def packed(*batches: Sequence[Item | Failed]) -> ListStream:
    return ListStream([[pack(item) for item in batch] for batch in batches])


def start(*batches: Sequence[Item | Failed]) -> Pump:
    inlet = Inlet()
    return Pump(packed(*batches), inlet.box(), inlet)


async def begun(
    call: Call[TokenRequest], request: TokenRequest, inlet: Inlet | None = None
) -> tuple[Pump, TokenRequest]:
    return await started(call, request, inlet or Inlet(), TimeLeft(request.timeout_s))


async def settle() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


async def test_the_first_items_come_at_once_and_the_rest_when_the_reader_is_back() -> None:
    pump = start([Admitted(3, 0), Tokens(0, (1,))], [Tokens(0, (2,))], [Tokens(0, (3,))])
    assert await pump.next() == [Admitted(3, 0), Tokens(0, (1,))]
    await settle()
    assert await pump.next() == [Tokens(0, (2, 3))]
    assert await pump.next() == []


async def test_what_came_before_an_error_is_read_before_it_is_raised() -> None:
    pump = start([Tokens(0, (1,))], [Failed("broken")])
    assert await pump.next() == [Tokens(0, (1,))]
    with pytest.raises(Failed, match="broken"):
        await pump.next()


async def test_a_stream_that_fails_ends_in_our_words() -> None:
    class Broken(ListStream):
        async def __anext__(self) -> list[Packed]:
            raise RuntimeError("Traceback of something remote")

    inlet = Inlet()
    with pytest.raises(Failed) as failed:
        await Pump(Broken([]), inlet.box(), inlet).next()
    assert "Traceback" not in str(failed.value)


async def test_the_stream_is_given_back_uncancelled() -> None:
    stream = ListStream([])
    inlet = Inlet()
    assert Pump(stream, inlet.box(), inlet).stop_reading() is stream
    assert not stream.cancelled


async def test_a_stream_lost_before_its_first_item_is_cancelled_and_replaced() -> None:
    lost, good = Lost([]), packed([Text("a")])
    streams = [lost, good]
    pump, _ = await begun(lambda *_: streams.pop(0), ask([1]))
    assert (await pump.next(), await pump.next()) == ([Text("a")], [])
    assert (lost.cancelled, good.cancelled) == (True, False)
    with pytest.raises(ReplicaLost):
        await begun(lambda *_: Lost([]), ask([1]))


async def test_a_replica_that_says_nothing_in_time_is_given_up() -> None:
    silent = Silent([])
    with pytest.raises(TimedOut):
        await begun(lambda *_: silent, ask([1], timeout_s=0.01))
    assert silent.cancelled


async def test_each_attempt_is_told_what_is_left_of_the_time() -> None:
    told: list[float] = []

    class LostLater(Lost):
        async def __anext__(self) -> list[Packed]:
            await asyncio.sleep(0.001)
            return await super().__anext__()

    def call(request: TokenRequest, _: Reader) -> ListStream:
        told.append(request.timeout_s or 0)
        return LostLater([]) if len(told) == 1 else packed([Text("a")])

    await begun(call, ask([1], timeout_s=3600))
    assert 0 < told[1] < told[0] <= 3600
    with pytest.raises(TimedOut):
        await begun(lambda *_: LostLater([]), ask([1], timeout_s=0.0005))


async def test_one_that_is_given_up_brings_what_had_come() -> None:
    inlet = Inlet()
    pump = Pump(Silent([[pack(Tokens(0, (1,)))]]), inlet.box(), inlet)
    await pump.begin()
    pump.give_up()
    assert await pump.next() == [Tokens(0, (1,))]
    assert (await pump.next(), pump.given_up) == ([], True)
    waited = Pump(Silent([]), inlet.box(), inlet)
    more = asyncio.create_task(waited.next())
    await settle()
    waited.give_up()
    assert await more == []


async def test_an_answer_that_has_ended_is_not_given_up() -> None:
    pump = start([Tokens(0, (1,)), Failed("broken")])
    await settle()
    pump.give_up()
    assert (await pump.next(), pump.given_up) == ([Tokens(0, (1,))], False)
    with pytest.raises(Failed, match="broken"):
        await pump.next()


class Answering(ListStream):
    """An engine's answer, which goes on if its caller is cut off."""

    def __init__(self, engine: TokenEngine, request: TokenRequest, *, cut_off: bool) -> None:
        super().__init__([])
        self.items = engine.generate(request)
        self._cut_off = cut_off

    async def __anext__(self) -> list[Packed]:
        item = await anext(self.items)
        if self._cut_off:
            raise RayActorError
        return [pack(item)]


async def test_a_replica_that_is_asked_again_tells_the_attempts_apart() -> None:
    first, streams = ask([1, 2, 3], 40, seed=7), []
    async with serving(recall_model(seconds=0.001)) as engine:

        def call(request: TokenRequest, _: Reader) -> Answering:
            streams.append(Answering(engine, request, cut_off=request.id == first.id))
            return streams[-1]

        pump, asked = await begun(call, first)
        engine.stop_choice(first.id, 0)
        tokens: list[int] = []
        while ready := await pump.next():
            tokens += [one for item in ready if isinstance(item, Tokens) for one in item.token_ids]
        await streams[0].items.aclose()
    assert tokens == expected([1, 2, 3], 7, 40)
    assert asked == replace(first, id=asked.id)


class Sender:
    """Puts into a box what a line would."""

    def __init__(self, box: Box) -> None:
        self._box = box

    def send(self, *items: Item) -> None:
        for item in items:
            self._box.take(self, pack(item))


async def test_what_comes_by_a_line_is_complete_before_the_end_counts() -> None:
    inlet = Inlet()
    box = inlet.box()
    pump = Pump(ListStream([[("sent", 2), pack(Failed("broken"))]]), box, inlet)
    line = Sender(box)
    line.send(Tokens(0, (1,)))
    assert await pump.next() == [Tokens(0, (1,))]
    await settle()
    line.send(Tokens(0, (2,)))
    assert await pump.next() == [Tokens(0, (2,))]
    with pytest.raises(Failed, match="broken"):
        await pump.next()


async def test_a_line_may_go_once_it_has_brought_all() -> None:
    inlet = Inlet()
    box = inlet.box()
    pump = Pump(Silent([[("sent", 1)]]), box, inlet)
    line = Sender(box)
    line.send(Tokens(0, (1,)))
    await settle()
    inlet.lose(line)
    assert await pump.next() == [Tokens(0, (1,))]
    more = asyncio.create_task(pump.next())
    await settle()
    assert not more.done()
    more.cancel()
    pump.stop_reading()


async def test_a_lost_line_loses_the_replica() -> None:
    inlet = Inlet()
    calls: list[Reader] = []

    def call(_: TokenRequest, reader: Reader) -> ListStream:
        calls.append(reader)
        return Silent([]) if len(calls) == 1 else packed([Text("b")])

    starting = asyncio.create_task(begun(call, ask([1]), inlet))
    await settle()
    line = object()
    inlet.sort(line, [(calls[0].number, pack(Text("a")))])
    pump, _ = await starting
    inlet.lose(line)
    assert await pump.next() == [Text("a")]
    with pytest.raises(ReplicaLost):
        await pump.next()
    pump.stop_reading()


def test_tokens_of_a_choice_become_one_item_that_keeps_its_end() -> None:
    assert merged(
        [
            Tokens(0, (1,)),
            Tokens(1, (5,)),
            Tokens(0, (2, 3)),
            Tokens(1, (), FinishReason.STOP, 9),
        ]
    ) == [Tokens(0, (1, 2, 3)), Tokens(1, (5,), FinishReason.STOP, 9)]


def test_events_stay_as_they_are() -> None:
    assert merged([Text("a"), Text("b")]) == [Text("a"), Text("b")]
