from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence

import pytest

from deployments.pump import Pump, merged
from deployments.wire import Item, Packed, pack
from models.errors import Failed
from models.events import FinishReason, Text
from models.token_engine import Admitted, Tokens


class ListStream:
    """A producer that never waits for its reader."""

    def __init__(self, batches: Sequence[Sequence[Item | Failed]]) -> None:
        self.cancelled = False
        self._batches = self._all(batches)

    async def __anext__(self) -> list[Packed]:
        return await anext(self._batches)

    def cancel(self) -> None:
        self.cancelled = True

    async def _all(self, batches: Sequence[Sequence[Item | Failed]]) -> AsyncIterator[list[Packed]]:
        for batch in batches:
            await asyncio.sleep(0)
            yield [pack(item) for item in batch]


def start(*batches: Sequence[Item | Failed]) -> Pump:
    return Pump(ListStream(batches[1:]), [pack(item) for item in batches[0]])


async def test_the_first_items_come_at_once_and_the_rest_when_the_reader_is_back() -> None:
    pump = start([Admitted(3, 0), Tokens(0, (1,))], [Tokens(0, (2,))], [Tokens(0, (3,))])
    batches = pump.batches()
    assert await anext(batches) == [Admitted(3, 0), Tokens(0, (1,))]
    for _ in range(10):
        await asyncio.sleep(0)
    assert await anext(batches) == [Tokens(0, (2, 3))]
    assert [batch async for batch in batches] == []


async def test_what_came_before_an_error_is_read_before_it_is_raised() -> None:
    batches = start([Tokens(0, (1,))], [Failed("broken")]).batches()
    assert await anext(batches) == [Tokens(0, (1,))]
    with pytest.raises(Failed, match="broken"):
        await anext(batches)


async def test_a_stream_that_fails_ends_in_our_words() -> None:
    class Broken(ListStream):
        async def __anext__(self) -> list[Packed]:
            raise RuntimeError("Traceback of something remote")

    with pytest.raises(Failed) as failed:
        [batch async for batch in Pump(Broken([]), []).batches()]
    assert "Traceback" not in str(failed.value)


async def test_the_stream_is_given_back_uncancelled() -> None:
    stream = ListStream([])
    assert Pump(stream, []).stop_reading() is stream
    assert not stream.cancelled


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
