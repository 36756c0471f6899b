"""Lines within one process, and takers that keep what comes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import Any

from deployments.lines.inlet import Box, Inlet
from deployments.lines.outlet import Outlet

HOST = "127.0.0.1"


class Collector:
    """A taker that keeps all."""

    def __init__(self, box: Box) -> None:
        self.items: list[Any] = []
        self.lost = False
        box.open(self)

    def take(self, payload: Any) -> None:
        self.items.append(payload)

    def lose(self) -> None:
        self.lost = True


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(10):
        while not condition():  # noqa: ASYNC110 - what it looks at tells nobody
            await asyncio.sleep(0.005)


@asynccontextmanager
async def connected(inlet: Inlet) -> AsyncGenerator[Outlet, None]:
    outlet = Outlet()
    await outlet.open(HOST)
    assert outlet.address is not None
    inlet.connect(outlet.address)
    await until(lambda: inlet.id in outlet.lines)
    try:
        yield outlet
    finally:
        outlet.close()
