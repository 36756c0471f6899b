"""Answers through the whole graph on a real Ray."""

from __future__ import annotations

import asyncio
from contextlib import aclosing

import httpx
import pytest
from ray import serve

from deployments.response_store import RemoteStore
from deployments.responses.record import Record
from models.errors import Busy, Invalid, TimedOut, TooLong
from models.events import Finished, FinishReason, Started, Text
from models.request import GenerateRequest, SamplingParams, TextPrompt, TokenPrompt
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
from tests.models.recall import score

pytestmark = [pytest.mark.slow, pytest.mark.asyncio(loop_scope="session")]


async def test_an_answer_crosses_the_graph_token_by_token(graph: RunningGraph) -> None:
    engine = graph.engine("recall")
    events = await events_of(engine, ask("hello", 40))
    assert isinstance(events[0], Started)
    assert text_of(events) == answer_to("hello", 40)
    assert finishes(events)[0].reason is FinishReason.LENGTH
    assert finishes(events)[0].usage.completion_tokens == 40
    assert sum(isinstance(event, Text) for event in events) > 10


async def test_choices_share_one_stream(graph: RunningGraph) -> None:
    events = await events_of(graph.engine("recall"), ask("choices", 20, n=3))
    for choice in range(3):
        assert text_of(events, choice) == answer_to("choices", 20, seed=1 + choice)
    assert set(finishes(events)) == {0, 1, 2}


async def test_a_reader_that_comes_back_late_finds_all_that_is_ready(graph: RunningGraph) -> None:
    engine = graph.engine("recall")
    async with aclosing(engine.generate(ask("late", 60))) as events:
        assert isinstance(await anext(events), Started)
        assert isinstance(await anext(events), Text)
        await asyncio.sleep(0.5)
        assert (await measured(engine))["stepserve_requests_running"] == 0
        rest = [event async for event in events]
    assert [type(event) for event in rest] == [Text, Finished]


async def test_mistakes_are_values_that_keep_their_type(graph: RunningGraph) -> None:
    engine = graph.engine("recall")
    with pytest.raises(TooLong) as long:
        await events_of(engine, ask("x" * 600))
    assert (long.value.prompt_tokens, long.value.max_context) == (600, 512)
    with pytest.raises(Invalid):
        await events_of(engine, GenerateRequest(id="odd", prompt=TokenPrompt((10_000,))))


async def test_the_largest_body_crosses_the_hops(graph: RunningGraph) -> None:
    with pytest.raises(TooLong) as long:
        await events_of(graph.engine("recall"), ask("é" * 1_750_000))
    assert long.value.prompt_tokens == 3_500_000


async def test_a_full_model_says_busy_and_when_to_come_back(graph: RunningGraph) -> None:
    engine = graph.engine("fragile")
    answers = await asyncio.gather(
        *(events_of(engine, ask("full", 20)) for _ in range(6)), return_exceptions=True
    )
    busy = [answer for answer in answers if isinstance(answer, Busy)]
    assert len(busy) == 3
    assert all(error.retry_after >= 1 for error in busy)
    await until_idle(engine)


async def test_readiness_and_metrics_are_served_over_all_models(graph: RunningGraph) -> None:
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{graph.port}", timeout=60) as client:
        ready = await client.get("/ready")
        metrics = (await client.get("/metrics")).text
    assert ready.status_code == 200, ready.text
    assert set(ready.json()["models"]) == {"recall", "babbling", "fragile", "crash", "vectors"}
    for model in ("recall", "fragile", "crash", "vectors"):
        assert f'stepserve_replicas_scraped{{model="{model}"}} 1.0' in metrics
    assert 'stepserve_kv_blocks{model="recall"} 1024.0' in metrics


async def test_the_tokenizer_is_asked_through_the_graph(graph: RunningGraph) -> None:
    engine = graph.engine("recall")
    long = "x" * 5000
    assert await engine.tokenize(TextPrompt(long)) == tuple(long.encode())
    assert await engine.token_strings([104, 32]) == ["h", "Ġ"]
    assert await engine.detokenize([104, 105]) == "hi"
    assert engine.max_context > 0
    with pytest.raises(Invalid, match="outside"):
        await engine.detokenize([10**6])


async def test_an_engine_of_text_has_no_tokenizer_to_ask(graph: RunningGraph) -> None:
    base = f"http://127.0.0.1:{graph.port}"
    async with httpx.AsyncClient(base_url=base, timeout=30) as http:
        refused = await http.post("/tokenize", json={"model": "crash", "prompt": "a"})
        answer = await http.post("/tokenize", json={"model": "recall", "prompt": "ab"})
    assert (refused.status_code, refused.json()["error"]["param"]) == (400, "model")
    assert answer.json()["tokens"] == [97, 98]


async def test_other_processes_find_a_response_too(graph: RunningGraph) -> None:
    base = f"http://127.0.0.1:{graph.port}"
    async with httpx.AsyncClient(base_url=base, timeout=30) as http:
        body = {"model": "babbling", "input": "a", "max_output_tokens": 4}
        store = RemoteStore(serve.get_deployment_handle("Responses", "test"))
        first = (await http.post("/v1/responses", json=body)).json()
        record = await store.get(first["id"])
        assert record is not None
        assert Record.load(record).response == first
        assert (await http.get(f"/v1/responses/{first['id']}")).json() == first
        body["previous_response_id"] = first["id"]
        second = (await http.post("/v1/responses", json=body)).json()
        assert second["usage"]["input_tokens"] > first["usage"]["input_tokens"]
        assert (await http.delete(f"/v1/responses/{first['id']}")).json()["deleted"]
        assert await store.get(first["id"]) is None
        assert (await http.get(f"/v1/responses/{first['id']}")).status_code == 404


async def test_scores_cross_the_graph_with_their_text(graph: RunningGraph) -> None:
    wish = SamplingParams(max_tokens=20, seed=1, logprobs=0, prompt_logprobs=0)
    prompt = TextPrompt("scores")
    request = GenerateRequest(id="scores", prompt=prompt, sampling=wish, return_token_ids=True)
    events = await events_of(graph.engine("recall"), request)
    started = events[0]
    assert isinstance(started, Started)
    said = [event for event in events if isinstance(event, Text | Finished)]
    logprobs = [*started.logprobs, *(one for event in said for one in event.logprobs)]
    tokens = [*started.token_ids, *(token_id for event in said for token_id in event.token_ids)]
    assert bytes(tokens).decode() == "scores" + answer_to("scores", 20)
    expected = [score(tokens[:i], tokens[i]).logprob for i in range(1, len(tokens))]
    assert [one.logprob for one in logprobs] == [None, *expected]


async def test_a_timeout_ends_an_answer_in_its_replica(graph: RunningGraph) -> None:
    engine = graph.engine("recall")
    wish = SamplingParams(max_tokens=500, seed=1)
    timely = GenerateRequest(id="t1", prompt=TextPrompt("timely"), sampling=wish, timeout_s=0.7)
    events = await events_of(engine, timely)
    (end,) = finishes(events).values()
    assert end.reason is FinishReason.LENGTH
    assert 0 < end.usage.completion_tokens < 500
    assert text_of(events) == answer_to("timely", end.usage.completion_tokens)
    hasty = GenerateRequest(id="t2", prompt=TextPrompt("hasty"), sampling=wish, timeout_s=1e-6)
    with pytest.raises(TimedOut):
        await events_of(engine, hasty)
    await until_idle(engine)
