"""Limits of a key at two replicas of the Ingress of ``serve run``, which count together."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from tests.deployments.rates.redis_server import needs_redis, redis_server
from tests.serving import ROOT, Server, serving

pytestmark = pytest.mark.slow

KEYS = ["sk-1 ann", "sk-2 bob"]
REQUESTS, TOKENS = 12, 100_000
LIMITS = {
    "keys": [
        {"name": "ann", "requests_per_minute": REQUESTS},
        {"name": "bob", "tokens_per_minute": TOKENS, "requests_at_once": 8},
    ]
}


@contextmanager
def limited(folder: Path, storage: str | None) -> Iterator[Server]:
    """The scripted model, two replicas of its Ingress, and its keys."""
    config: dict[str, Any] = yaml.safe_load((ROOT / "configs/presets/mock.yaml").read_text())
    application = config["applications"][0]
    [ingress] = [one for one in application["deployments"] if one["name"] == "Ingress"]
    ingress |= {"num_replicas": 2, "ray_actor_options": {"num_cpus": 0.1}}
    application["args"] |= {"api_keys": KEYS, "rate_limits": {**LIMITS, "storage": storage}}
    path = folder / "config.yaml"
    path.write_text(yaml.safe_dump(config))
    with serving(path) as server:
        yield server


@pytest.fixture(scope="module", params=["replica", pytest.param("redis", marks=needs_redis)])
def server(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp(request.param)
    if request.param == "replica":
        with limited(folder, None) as server:
            yield server
    else:
        with redis_server() as storage, limited(folder, storage) as server:
            yield server


@pytest.fixture
async def http(server: Server) -> AsyncIterator[httpx.AsyncClient]:
    """Each request has a connection of its own, so that it may come to either replica."""
    limits = httpx.Limits(max_keepalive_connections=0)
    async with httpx.AsyncClient(base_url=server.url, timeout=60, limits=limits) as http:
        yield http


async def ask(http: httpx.AsyncClient, key: str, **body: Any) -> httpx.Response:
    headers = {"authorization": f"Bearer {key}"}
    body = {"model": "mock", "prompt": "Hi", **body}
    return await http.post("/v1/completions", json=body, headers=headers)


async def test_requests_are_counted_together(http: httpx.AsyncClient) -> None:
    begun = time.time()
    answers = await asyncio.gather(*(ask(http, "sk-1") for _ in range(3 * REQUESTS)))
    codes = Counter(a.status_code for a in answers)
    assert codes.keys() == {200, 429}
    assert REQUESTS <= codes[200] <= REQUESTS + REQUESTS * faded(begun)
    for answer in answers:
        assert answer.headers["x-ratelimit-limit-requests"] == str(REQUESTS)
    assert await refused(http) == {("ann", "requests"): codes[429]}


async def test_tokens_are_what_was_used_once_all_have_ended(
    server: Server, http: httpx.AsyncClient
) -> None:
    begun = time.time()
    async with openai.AsyncOpenAI(
        base_url=f"{server.url}/v1", api_key="sk-2", max_retries=20
    ) as client:

        async def one(number: int) -> int:
            stream = await client.completions.create(
                model="mock",
                prompt="Hi",
                max_tokens=50 + number,
                stream=True,
                stream_options={"include_usage": True},
                extra_body={"ignore_eos": True},
            )
            return sum([c.usage.total_tokens async for c in stream if c.usage is not None])

        used = sum(await asyncio.gather(*(one(number) for number in range(12))))
    look = await ask(http, "sk-2", temperature="high")
    told = TOKENS - int(look.headers["x-ratelimit-remaining-tokens"])
    assert used - used * faded(begun) - 1 <= told <= used


def faded(begun: float) -> float:
    """Which part of what was counted since then may count no more: only past minutes fade."""
    now = time.time()
    minutes = now // 60 - begun // 60
    if minutes < 2:
        return minutes * (now % 60 / 60)
    return minutes


async def refused(http: httpx.AsyncClient) -> dict[tuple[str, str], float]:
    """By key and kind, as any replica of the Ingress tells it."""
    told = []
    headers = {"authorization": "Bearer sk-2"}
    for _ in range(6):
        text = (await http.get("/metrics", headers=headers)).text
        samples = [s for f in text_string_to_metric_families(text) for s in f.samples]
        limits = [s for s in samples if s.name == "stepserve_requests_limited_total"]
        told.append({(s.labels["key"], s.labels["kind"]): s.value for s in limits})
    assert all(one == told[0] for one in told)
    return told[0]
