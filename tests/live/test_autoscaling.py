"""A model whose replicas follow its work, at ``serve run``: few requests that fill one of them."""

from __future__ import annotations

import asyncio

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.live.conftest import FILLS, SCALED
from tests.serving import Server

pytestmark = pytest.mark.slow

SHOWN = "stepserve_replicas"
PATIENCE_S = 60.0


async def test_replicas_follow_the_work(replicas_server: Server) -> None:
    assert await replicas(replicas_server) == 1
    asking = [asyncio.create_task(ask(replicas_server)) for _ in range(2 * FILLS)]
    await until(replicas_server, 2)
    for task in asking:
        task.cancel()
    await asyncio.gather(*asking, return_exceptions=True)
    await until(replicas_server, 1)


async def ask(server: Server) -> None:
    """One request after the other."""
    body = {"model": SCALED, "prompt": "ab", "max_tokens": 200, "ignore_eos": True}
    async with httpx.AsyncClient(timeout=PATIENCE_S) as http:
        while True:
            answer = await http.post(f"{server.url}/v1/completions", json=body)
            assert answer.status_code == 200, answer.text


async def until(server: Server, count: int) -> None:
    """Returns when there are so many replicas."""
    for _ in range(int(PATIENCE_S)):
        if await replicas(server) == count:
            return
        await asyncio.sleep(1.0)
    raise AssertionError(f"there never were {count} replicas:\n{server.log()}")


async def replicas(server: Server) -> int:
    async with httpx.AsyncClient(timeout=PATIENCE_S) as http:
        text = (await http.get(f"{server.url}/metrics")).text
    samples = [s for f in text_string_to_metric_families(text) for s in f.samples]
    [count] = [s.value for s in samples if s.name == SHOWN and s.labels["model"] == SCALED]
    return int(count)
