"""What operators do to a graph that runs."""

from __future__ import annotations

import asyncio

import httpx
import pytest

from tests.graph.asking import until_idle
from tests.graph.conftest import ADMIN_KEY, HOST, RunningGraph

pytestmark = pytest.mark.slow

KEY = {"authorization": f"Bearer {ADMIN_KEY}"}
PROMPT = "a prompt of several blocks, so that there is something to be found again" * 2


def client(graph: RunningGraph) -> httpx.AsyncClient:
    return httpx.AsyncClient(base_url=f"http://{HOST}:{graph.port}", timeout=60)


async def test_an_aborted_request_frees_what_it_held(graph: RunningGraph) -> None:
    body = {"model": "recall", "prompt": "abc", "max_tokens": 100_000, "n": 4, "rid": "long"}
    async with client(graph) as http:
        whole = asyncio.create_task(http.post("/v1/completions", json=body))
        async with http.stream("POST", "/v1/completions", json={**body, "stream": True}) as stream:
            lines = stream.aiter_lines()
            await anext(lines)
            asked = {"request_ids": ["long"]}
            told = await http.post("/abort_requests", json=asked, headers=KEY)
            rest = [line async for line in lines if line]
        assert told.json() == {"aborted": 2}
        assert (await whole).status_code == 409
    assert "request_aborted" in rest[-1]
    await until_idle(graph.engine("recall"))


async def test_prompts_are_not_found_again_once_caches_are_empty(graph: RunningGraph) -> None:
    body = {"model": "recall", "prompt": PROMPT, "max_tokens": 1}
    cached = []
    async with client(graph) as http:
        for again in range(3):
            if again == 2:
                told = await http.post("/reset_prefix_cache", headers=KEY)
            answer = (await http.post("/v1/completions", json=body)).json()
            cached.append(answer["usage"]["prompt_tokens_details"]["cached_tokens"])
    blocks = told.json()["kv_blocks"]
    assert blocks.keys() == {"recall", "fragile", "babbling", "crash"}
    assert blocks["crash"] is None
    assert blocks["recall"] > 0
    assert cached[1] > 0
    assert cached[2] == 0
