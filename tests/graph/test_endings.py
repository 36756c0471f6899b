"""Whatever ends a request, nothing of it is left in the replica."""

from __future__ import annotations

import asyncio
import random
from contextlib import aclosing

import httpx
import pytest

from models.events import FinishReason
from tests.graph.asking import (
    answer_to,
    ask,
    events_of,
    finishes,
    measured,
    text_of,
    until_idle,
)
from tests.graph.conftest import RunningGraph

pytestmark = [pytest.mark.slow, pytest.mark.asyncio(loop_scope="session")]


async def test_a_closed_iterator_frees_everything(graph: RunningGraph) -> None:
    engine = graph.engine("recall")
    async with aclosing(engine.generate(ask("close", 400))) as events:
        await anext(events)
        assert (await measured(engine))["stepserve_kv_blocks_used"] > 0
    seen = await until_idle(engine)
    assert seen["stepserve_requests_finished_total/cancelled"] >= 1


async def test_a_text_stop_ends_the_answer_and_counts_as_a_stop(graph: RunningGraph) -> None:
    engine = graph.engine("recall")
    whole = answer_to("stop here", 60)
    stop = whole[20:22]
    before = await until_idle(engine)
    events = await events_of(engine, ask("stop here", 400, stop=[stop]))
    cut = whole.index(stop)
    assert text_of(events) == whole[:cut]
    finished = finishes(events)[0]
    assert (finished.reason, finished.stop) == (FinishReason.STOP, stop)
    assert finished.usage.completion_tokens == cut + len(stop)
    after = await until_idle(engine)
    key = "stepserve_requests_finished_total/"
    assert after[key + "stop"] == before[key + "stop"] + 1
    assert after[key + "cancelled"] == before[key + "cancelled"]


async def test_a_stop_in_one_choice_leaves_the_others_running(graph: RunningGraph) -> None:
    engine = graph.engine("recall")
    first, second = (answer_to("both", 120, seed=1 + choice) for choice in range(2))
    stop = next(pair for at in range(100) if (pair := first[at : at + 2]) not in second)
    events = await events_of(engine, ask("both", 120, n=2, stop=[stop]))
    assert text_of(events, 0) == first[: first.index(stop)]
    assert text_of(events, 1) == second
    assert [finishes(events)[choice].reason for choice in range(2)] == ["stop", "length"]
    await until_idle(engine)


async def test_half_of_300_requests_disconnect_and_nothing_is_left(graph: RunningGraph) -> None:
    engine = graph.engine("recall")
    random_ = random.Random(7)

    async def one(client: httpx.AsyncClient, index: int) -> str | None:
        await asyncio.sleep(random_.random() * 4)
        body = {
            "model": "recall",
            "prompt": f"soak {index}",
            "max_tokens": random_.randrange(1, 80),
            "seed": index,
            "stream": random_.random() < 0.7,
        }
        patience = random_.random() * 0.5 if index % 2 else 60.0
        try:
            answer = await asyncio.wait_for(client.post("/v1/completions", json=body), patience)
        except TimeoutError:
            return None
        assert answer.status_code == 200, answer.text
        return answer.text

    address = f"http://127.0.0.1:{graph.port}"
    limits = httpx.Limits(max_connections=400)
    async with httpx.AsyncClient(base_url=address, limits=limits, timeout=60) as client:
        answers = await asyncio.gather(*(one(client, index) for index in range(300)))
        assert all(answers[0::2])
        seen = await until_idle(engine)
        assert seen["stepserve_requests_finished_total/error"] == 0
        body = {"model": "recall", "prompt": "after", "max_tokens": 5, "seed": 3}
        after = await client.post("/v1/completions", json=body)
    assert after.json()["choices"][0]["text"] == answer_to("after", 5, seed=3)
