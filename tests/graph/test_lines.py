"""Answers that come by lines, through the whole graph, when something on their way ends."""

from __future__ import annotations

import asyncio
import time

import httpx
import pytest
import ray

from tests.graph.asking import answer_to, ask, events_of, text_of, until_idle
from tests.graph.conftest import RunningGraph

pytestmark = [pytest.mark.slow, pytest.mark.asyncio(loop_scope="session")]


def body(prompt: str, count: int) -> dict[str, object]:
    return {
        "model": "recall",
        "prompt": prompt,
        "max_tokens": count,
        "seed": 1,
        "stream": True,
        "stream_options": {"include_usage": True},
    }


async def test_many_answers_at_once_are_each_whole_and_their_own(graph: RunningGraph) -> None:
    engine = graph.engine("recall")
    await events_of(engine, ask("first", 2))
    prompts = [f"together {number}" for number in range(64)]
    answers = await asyncio.gather(*(events_of(engine, ask(prompt, 60)) for prompt in prompts))
    assert [text_of(events) for events in answers] == [answer_to(p, 60) for p in prompts]


async def test_a_whole_answer_of_many_megabytes_reaches_its_client(graph: RunningGraph) -> None:
    base = f"http://127.0.0.1:{graph.port}"
    async with httpx.AsyncClient(base_url=base, timeout=60) as client:
        asked = {"model": "recall", "prompt": "x" * 1_500_000}
        answer = await client.post("/tokenize", json=asked)
    assert len(answer.content) > 5_000_000
    assert answer.json()["count"] == 1_500_000


async def test_a_storm_of_cancelled_answers_leaves_the_line_to_the_others(
    graph: RunningGraph,
) -> None:
    engine = graph.engine("recall")
    await events_of(engine, ask("first", 2))
    kept = asyncio.create_task(events_of(engine, ask("kept", 400)))
    for _ in range(10):
        storm = [asyncio.create_task(events_of(engine, ask("gone", 400))) for _ in range(20)]
        await asyncio.sleep(0.05)
        for task in storm:
            task.cancel()
        await asyncio.gather(*storm, return_exceptions=True)
    assert text_of(await asyncio.wait_for(kept, 60)) == answer_to("kept", 400)
    await until_idle(engine)


async def test_an_ingress_that_dies_breaks_its_answers_off_and_is_replaced(
    graph: RunningGraph,
) -> None:
    base = f"http://127.0.0.1:{graph.port}/v1"
    async with httpx.AsyncClient(base_url=base, timeout=60) as client:
        await client.post("/completions", json=body("warm", 2))
        lines: list[str] = []
        with pytest.raises(httpx.HTTPError):
            await stream_until_it_breaks(client, lines)
        assert lines
        assert "data: [DONE]" not in lines
        assert '"finish_reason":"length"' in await until_served(client)
    await until_idle(graph.engine("recall"))


async def stream_until_it_breaks(client: httpx.AsyncClient, lines: list[str]) -> None:
    async with client.stream("POST", "/completions", json=body("long", 450)) as answer:
        async for line in answer.aiter_lines():
            lines.append(line)
            if len(lines) == 10:
                kill_ingress()


def kill_ingress() -> None:
    names = [actor["name"] for actor in ray.util.list_named_actors(all_namespaces=True)]
    (name,) = (name for name in names if "#Ingress#" in name)
    ray.kill(ray.get_actor(name, namespace="serve"))


async def until_served(client: httpx.AsyncClient) -> str:
    deadline = time.monotonic() + 60
    while True:
        answer = await client.post("/completions", json=body("again", 5))
        if answer.status_code == 200 and "[DONE]" in answer.text:
            return answer.text
        assert time.monotonic() < deadline, answer.text
        await asyncio.sleep(0.2)
