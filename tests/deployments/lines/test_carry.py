from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from deployments.lines.carry import carried
from deployments.lines.inlet import Inlet
from deployments.wire import Item, pack
from models.errors import Failed, Invalid
from models.events import Text
from tests.deployments.lines.collecting import Collector, connected, until

Give = Callable[[Item], None]


async def two(give: Give) -> None:
    give(Text("a"))
    await asyncio.sleep(0)
    give(Text("b"))


async def refuse(give: Give) -> None:
    give(Text("a"))
    raise Invalid("no")


async def test_the_stream_says_how_much_the_line_was_given() -> None:
    inlet = Inlet()
    box = inlet.box()
    taker = Collector(box)
    async with connected(inlet) as outlet:
        line = outlet.line_to(box.reader)
        assert line is not None
        assert await carried(line, box.reader.number, two) == [("sent", 2)]
        await until(lambda: box.taken == 2)
        count, error = await carried(line, box.reader.number, refuse)
        assert count == ("sent", 1)
        assert (error[0], str(error[1])) == ("error", "no")
        await until(lambda: box.taken == 3)
    assert taker.items == [pack(Text(delta)) for delta in "aba"]


async def test_work_for_a_lost_reader_ends() -> None:
    inlet = Inlet()
    box = inlet.box()
    ended = asyncio.Event()

    async def endless(give: Give) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    async with connected(inlet) as outlet:
        line = outlet.line_to(box.reader)
        assert line is not None
        carrying = asyncio.create_task(carried(line, box.reader.number, endless))
        await asyncio.sleep(0.01)
        inlet.close()
        ((kind, error),) = await asyncio.wait_for(carrying, 10)
    assert kind == "error"
    assert isinstance(error, Failed)
    assert ended.is_set()


async def test_a_cancelled_request_is_no_lost_reader() -> None:
    inlet = Inlet()
    box = inlet.box()

    async def endless(give: Give) -> None:
        await asyncio.Event().wait()

    async with connected(inlet) as outlet:
        line = outlet.line_to(box.reader)
        assert line is not None
        carrying = asyncio.create_task(carried(line, box.reader.number, endless))
        await asyncio.sleep(0)
        carrying.cancel()
        with pytest.raises(asyncio.CancelledError):
            await carrying
