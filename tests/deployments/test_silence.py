from __future__ import annotations

import asyncio

from deployments.silence import Silence
from tests.deployments.serving import eventually


async def test_it_tells_of_each_wait_that_is_too_long() -> None:
    told: list[None] = []
    silence = Silence(0.01, lambda: told.append(None))
    await eventually(lambda: len(told) > 2)
    silence.close()
    told.clear()
    await asyncio.sleep(0.03)
    assert not told


async def test_nothing_is_too_long_outside_of_a_wait() -> None:
    told: list[None] = []
    silence = Silence(0.01, lambda: told.append(None))
    silence.end()
    await asyncio.sleep(0.05)
    assert not told
    silence.begin()
    await eventually(lambda: told)
    silence.close()


async def test_every_wait_begins_anew() -> None:
    told: list[None] = []
    silence = Silence(0.5, lambda: told.append(None))
    for _ in range(60):
        silence.begin()
        await asyncio.sleep(0.01)
    silence.close()
    assert not told
