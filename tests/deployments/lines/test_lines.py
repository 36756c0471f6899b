from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress

import pytest

from deployments.lines.inlet import Inlet
from deployments.lines.outlet import ID_BYTES, MAX_UNSENT, Address, LineLost, Outlet
from tests.deployments.lines.collecting import HOST, Collector, connected, until


@asynccontextmanager
async def pretending(
    inlet: Inlet, outlet: Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
) -> AsyncGenerator[None, None]:
    """Has the inlet connect to something that is no outlet of ours."""
    server = await asyncio.start_server(outlet, HOST, 0)
    port = server.sockets[0].getsockname()[1]
    inlet.connect(Address(HOST, port, b"k" * 2 * ID_BYTES))
    try:
        yield
    finally:
        server.close()


async def test_items_arrive_in_order_in_their_boxes() -> None:
    inlet = Inlet()
    boxes = [inlet.box() for _ in range(3)]
    takers = [Collector(box) for box in boxes]
    async with connected(inlet) as outlet:
        line = outlet.line_to(boxes[0].reader)
        assert line is not None
        for turn in range(50):
            for box in boxes:
                line.put(box.reader.number, (box.reader.number, "x" * 1000 * turn))
            await asyncio.sleep(0)
        await until(lambda: all(box.taken == 50 for box in boxes))
    for box, taker in zip(boxes, takers, strict=True):
        assert taker.items == [(box.reader.number, "x" * 1000 * turn) for turn in range(50)]


async def test_a_closed_box_gets_nothing_and_the_others_go_on() -> None:
    inlet = Inlet()
    left, kept = inlet.box(), inlet.box()
    gone, stays = Collector(left), Collector(kept)
    async with connected(inlet) as outlet:
        line = outlet.line_to(kept.reader)
        assert line is not None
        left.close()
        line.put(left.reader.number, 1)
        line.put(kept.reader.number, 2)
        await until(lambda: stays.items)
    assert (gone.items, stays.items) == ([], [2])


async def test_the_end_of_a_line_is_told_on_both_sides() -> None:
    inlet = Inlet()
    begun, waiting = inlet.box(), inlet.box()
    one, other = Collector(begun), Collector(waiting)
    losses: list[int] = []
    async with connected(inlet) as outlet:
        line = outlet.line_to(begun.reader)
        assert line is not None
        with line.sender(begun.reader.number, lambda: losses.append(1)) as sender:
            sender.put("a")
            await until(lambda: one.items)
            inlet.close()
            await until(lambda: losses)
            with pytest.raises(LineLost):
                sender.put("b")
        assert outlet.line_to(begun.reader) is None
        await until(lambda: one.lost)
    assert not other.lost  # nothing of it came by that line: its own stream tells


async def test_a_lost_line_comes_back() -> None:
    inlet = Inlet()
    async with connected(inlet) as outlet:
        assert outlet.address is not None
        outlet.lines[inlet.id].end()
        await until(lambda: inlet.id not in outlet.lines)

        def again() -> bool:
            assert outlet.address is not None
            inlet.connect(outlet.address)
            return inlet.id in outlet.lines

        await until(again)


async def test_strangers_get_no_line() -> None:
    inlet = Inlet()
    async with connected(inlet) as outlet:
        assert outlet.address is not None
        host, port, key = outlet.address
        other = Inlet()
        other.connect(Address(host, port, bytes(len(key))))
        reader, writer = await asyncio.open_connection(host, port)
        writer.write(b"GET / HTTP/1.1\r\nhost: stranger.example\r\n\r\n")
        assert await reader.read() == b""
        writer.close()
        assert set(outlet.lines) == {inlet.id}


async def test_there_are_only_so_many_strangers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("deployments.lines.outlet.MAX_STRANGERS", 3)
    inlet = Inlet()
    async with connected(inlet) as outlet:
        assert outlet.address is not None
        host, port, _ = outlet.address
        silent = [await asyncio.open_connection(host, port) for _ in range(3)]
        reader, writer = await asyncio.open_connection(host, port)
        with suppress(ConnectionResetError):
            assert await asyncio.wait_for(reader.read(), 2) == b""
        for _, stranger in [*silent, (reader, writer)]:
            stranger.close()
        late = Inlet()

        def welcome() -> bool:
            assert outlet.address is not None
            late.connect(outlet.address)
            return late.id in outlet.lines

        await until(welcome)
        assert set(outlet.lines) == {inlet.id, late.id}


async def test_an_impostor_is_not_read() -> None:
    inlet = Inlet()
    heard = asyncio.Event()
    seen: list[bytes] = []

    async def pretend(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        seen.append(await reader.readexactly(2 * ID_BYTES))
        writer.write(bytes(ID_BYTES) + b"\0\0\0\5evil!")
        seen.append(await reader.read())
        heard.set()
        writer.close()

    async with pretending(inlet, pretend):
        await asyncio.wait_for(heard.wait(), 10)
    assert seen == [b"k" * ID_BYTES + inlet.id, b""]


async def test_a_frame_of_any_length_is_not_waited_for() -> None:
    inlet = Inlet()
    ended = asyncio.Event()

    async def boast(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        key = await reader.readexactly(2 * ID_BYTES)
        writer.write(key[:ID_BYTES] + (MAX_UNSENT + 1).to_bytes(4, "big"))
        with suppress(ConnectionResetError):
            await reader.read()
        ended.set()
        writer.close()

    async with pretending(inlet, boast):
        await asyncio.wait_for(ended.wait(), 2)


async def test_more_than_a_frame_holds_ends_the_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("deployments.lines.outlet.MAX_UNSENT", 1000)
    inlet = Inlet()
    box = inlet.box()
    taker = Collector(box)
    async with connected(inlet) as outlet:
        line = outlet.line_to(box.reader)
        assert line is not None
        line.put(box.reader.number, "x")
        await until(lambda: taker.items)
        line.put(box.reader.number, "x" * 1000)
        await until(lambda: taker.lost)
    assert taker.items == ["x"]


async def test_where_nobody_listens_there_is_no_line(caplog: pytest.LogCaptureFixture) -> None:
    with socket.socket() as closed:
        closed.bind((HOST, 0))
        port = closed.getsockname()[1]
    inlet = Inlet()
    inlet.connect(Address(HOST, port, bytes(2 * ID_BYTES)))
    await until(lambda: f"no line to {HOST}:{port}" in caplog.text)
    inlet.close()


async def test_a_reader_that_reads_nothing_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("deployments.lines.outlet.MAX_UNSENT", 100_000)
    outlet = Outlet()
    await outlet.open(HOST)
    assert outlet.address is not None
    host, port, key = outlet.address
    _, writer = await asyncio.open_connection(host, port, limit=1)
    writer.write(key[:ID_BYTES] + bytes(ID_BYTES))
    await until(lambda: bytes(ID_BYTES) in outlet.lines)
    line = outlet.lines[bytes(ID_BYTES)]
    lost: list[int] = []
    with line.sender(1, lambda: lost.append(1)) as sender:
        while not lost:
            sender.put(b"x" * 10_000)
            await asyncio.sleep(0)
        with pytest.raises(LineLost):
            sender.put(b"")
    writer.close()
    outlet.close()


async def test_encryption_that_ray_was_told_of_is_not_gone_round(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("RAY_USE_TLS", "1")
    outlet = Outlet()
    await outlet.open(HOST)
    assert outlet.address is None
