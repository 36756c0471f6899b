"""Both ends of the line between proxy and ingress, with a hop between them as Serve's is."""

from __future__ import annotations

import asyncio
import pickle
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from deployments.lines.outlet import Outlet
from deployments.lines.proxy import FromIngress, LineBroken
from deployments.lines.reply import HEADER, TowardProxy
from tests.deployments.lines.test_lines import HOST, until

PARTS = [b"data: %d\n\n" % i for i in range(20)]
Step = Callable[[int], Awaitable[None]]


async def at_once(step: int) -> None:
    await asyncio.sleep(0)


async def forever() -> None:
    await asyncio.Event().wait()


class Application:
    """Streams ``PARTS``; ``before`` is awaited before each of them."""

    def __init__(self, before: Step = at_once) -> None:
        self.before = before
        self.headers: list[list[tuple[bytes, bytes]]] = []
        self.ended = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.headers.append(scope["headers"])
        try:
            await send({"type": "http.response.start", "status": 200, "headers": []})
            for step, part in enumerate(PARTS):
                await self.before(step)
                await send({"type": "http.response.body", "body": part, "more_body": True})
            await send({"type": "http.response.body", "body": b"", "more_body": False})
        finally:
            self.ended += 1


class Hop:
    """Passes on what can be pickled, and counts the messages."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self.messages = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def send_far(message: Message) -> None:
            self.messages += 1
            await send(pickle.loads(pickle.dumps(message)))

        await self._app(pickle.loads(pickle.dumps(scope)), receive, send_far)


class Graph:
    def __init__(self, app: Application, outlet: Outlet) -> None:
        self.app = app
        self.outlet = outlet
        self.hop = Hop(TowardProxy(app, outlet))
        self.proxy = FromIngress(self.hop)

    async def post(self, send: Send, **headers: bytes) -> None:
        listed = [(name.encode(), value) for name, value in headers.items()]
        scope = {"type": "http", "method": "POST", "path": "/", "headers": listed}
        await self.proxy(scope, receive, send)

    async def get(self, **headers: bytes) -> list[Message]:
        messages: list[Message] = []

        async def keep(message: Message) -> None:
            messages.append(message)

        await self.post(keep, **headers)
        return messages

    async def warm(self) -> None:
        """After the first answer there is a line."""
        await self.get()
        await until(lambda: self.outlet.lines)


async def receive() -> Message:
    await asyncio.Event().wait()
    raise AssertionError


@asynccontextmanager
async def graph(before: Step = at_once) -> AsyncGenerator[Graph, None]:
    outlet = Outlet()
    await outlet.open(HOST)
    try:
        yield Graph(Application(before), outlet)
    finally:
        outlet.close()


def body_of(messages: list[Message]) -> bytes:
    return b"".join(message.get("body", b"") for message in messages)


def checked(messages: list[Message]) -> None:
    head, *_, end = messages
    assert head == {"type": "http.response.start", "status": 200, "headers": []}
    assert end == {"type": "http.response.body", "body": b"", "more_body": False}
    assert body_of(messages) == b"".join(PARTS)


async def test_the_first_answer_comes_by_its_stream_and_later_ones_by_the_line() -> None:
    async with graph() as it:
        checked(await it.get())
        assert it.hop.messages == len(PARTS) + 2
        await until(lambda: it.outlet.lines)
        it.hop.messages = 0
        answers = await asyncio.gather(*(it.get() for _ in range(20)))
        assert it.hop.messages == 2 * 20
        for messages in answers:
            checked(messages)


async def test_clients_cannot_say_who_reads() -> None:
    name = HEADER.decode()
    async with graph() as it:
        await it.warm()
        forged = b"%s-999999" % next(iter(it.outlet.lines)).hex().encode()
        checked(await it.get(**{name: forged}))
        checked(await it.get(**{name: b"nonsense"}))
        values = [[v for n, v in headers if n == HEADER] for headers in it.app.headers]
        assert all(len(one) == 1 and forged not in one for one in values)


async def test_what_is_no_body_of_a_post_is_left_alone() -> None:
    seen: list[Scope] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        seen.append(scope)

    scope: dict[str, Any] = {"type": "http", "method": "GET", "headers": [(b"a", b"b")]}
    told = {**scope, "headers": [*scope["headers"], (HEADER, b"0" * 32 + b"-1")]}
    await FromIngress(app)(told, receive, lambda _: asyncio.sleep(0))
    await FromIngress(app)({"type": "websocket"}, receive, lambda _: asyncio.sleep(0))
    assert seen == [scope, {"type": "websocket"}]


async def test_a_line_that_is_lost_breaks_the_answer_off() -> None:
    async with graph() as it:
        await it.warm()

        async def lose(step: int) -> None:
            await asyncio.sleep(0.01)
            if step == 5:
                for line in list(it.outlet.lines.values()):
                    line.end()

        it.app.before = lose
        messages: list[Message] = []

        async def keep(message: Message) -> None:
            messages.append(message)

        with pytest.raises(LineBroken):
            await asyncio.wait_for(it.post(keep), 10)
        assert b"".join(PARTS).startswith(body_of(messages))
        assert messages[-1].get("more_body", True)
        assert it.app.ended == 2
        it.app.before = at_once
        checked(await it.get())


@pytest.mark.parametrize("ends", [True, False])
async def test_an_answer_that_cannot_be_written_ends(ends: bool) -> None:
    async with graph() as it:
        await it.warm()
        if not ends:
            it.app.before = lambda step: at_once(step) if step < 5 else forever()

        async def refuse(message: Message) -> None:
            if message["type"] == "http.response.body":
                raise OSError("the client is gone")

        with pytest.raises(OSError, match="the client is gone"):
            await asyncio.wait_for(it.post(refuse), 10)
        assert it.app.ended == 2
        it.app.before = at_once
        checked(await it.get())


async def test_a_line_may_go_once_it_has_brought_all() -> None:
    async with graph() as it:
        await it.warm()
        gate, messages = asyncio.Event(), list[Message]()

        async def read_slowly(message: Message) -> None:
            if message["type"] == "http.response.body":
                await gate.wait()
            messages.append(message)

        it.hop.messages = 0
        reading = asyncio.create_task(it.post(read_slowly))
        await until(lambda: it.hop.messages == 2)  # head and end
        await asyncio.sleep(0.05)  # for the line to bring the rest
        for line in list(it.outlet.lines.values()):
            line.end()
        await asyncio.sleep(0.05)
        gate.set()
        await asyncio.wait_for(reading, 10)
        checked(messages)


async def test_a_slow_client_holds_up_no_other() -> None:
    async with graph() as it:
        await it.warm()
        gate = asyncio.Event()
        slow: list[Message] = []

        async def read_slowly(message: Message) -> None:
            if message["type"] == "http.response.body":
                await gate.wait()
            slow.append(message)

        reading = asyncio.create_task(it.post(read_slowly))
        for _ in range(5):
            checked(await it.get())
        assert not reading.done()
        assert len(slow) == 1
        gate.set()
        await asyncio.wait_for(reading, 10)
        checked(slow)
        assert len(slow) < 10  # what had gathered was written at once


async def test_a_client_that_reads_nothing_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("deployments.lines.proxy.MAX_UNSENT", sum(map(len, PARTS)) // 2)
    async with graph() as it:
        await it.warm()

        async def stand_still(message: Message) -> None:
            if message["type"] == "http.response.body":
                await forever()

        with pytest.raises(LineBroken, match="slowly"):
            await asyncio.wait_for(it.post(stand_still), 10)
        assert it.app.ended == 2


async def test_a_client_that_leaves_takes_nothing_with_it() -> None:
    async def slowly(step: int) -> None:
        await asyncio.sleep(0.005)

    async with graph() as it:
        await it.warm()
        it.app.before = slowly
        tasks = [asyncio.create_task(it.get()) for _ in range(20)]
        await asyncio.sleep(0.03)
        for task in tasks[::2]:
            task.cancel()
        answers = await asyncio.gather(*tasks, return_exceptions=True)
        assert all(isinstance(answer, asyncio.CancelledError) for answer in answers[::2])
        for messages in answers[1::2]:
            assert isinstance(messages, list)
            checked(messages)
        assert it.app.ended == 21
