from __future__ import annotations

import json

from models.mock import MockEngine
from tests.bench.client import Endpoint, over_http
from tests.bench.prompts import Prompts
from tests.bench.scenarios import Scenario, run, warm_up
from tests.bench.sse import Stream
from tests.deployments.serving import listening, make_app

SMALL = Scenario("S", "small", 2, 5, answer_tokens=12, long_prompts=2, apart_s=0.01)


async def test_scenarios_run_over_http() -> None:
    engine = MockEngine("mock", inter_token_s=0.002)
    with listening(make_app(engine)) as url:
        ask = over_http(Endpoint(url, "mock"))
        course = await run(SMALL, ask, Prompts.of_words(), 1)
    answered = [*course.streams, *course.long_streams]
    assert [stream.error for stream in answered] == [""] * 7
    assert [stream.tokens for stream in answered] == [12] * 5 + [32] * 2
    assert all(len(stream.arrivals) > 1 for stream in answered)
    first = max(stream.arrivals[0] for stream in course.streams[:2])
    assert course.began < first <= course.interrupted <= course.ended
    prompts = {repr(request.prompt) for request in engine.requests}
    assert len(prompts) == 7


async def test_chat_and_errors() -> None:
    with listening(make_app(MockEngine("mock"))) as url:
        chat = Stream()
        await over_http(Endpoint(f"{url}/v1", "mock", chat=True))("Hello", 4, chat)
        unknown = await warm_up(over_http(Endpoint(url, "other")), Prompts.of_words())
    assert (chat.tokens, chat.error) == (4, "")
    assert unknown.error.startswith("404")
    gone = Stream()
    await over_http(Endpoint(url, "mock"))("Hello", 4, gone)
    assert gone.error
    assert gone.over


def test_a_request_has_the_keys_that_were_asked_for() -> None:
    endpoint = Endpoint(
        "https://example.org/llm/v1", "m", "secret", body={"ignore_eos": None, "top_k": 1}
    )
    head, _, data = endpoint.request("Hi", 3).partition(b"\r\n\r\n")
    assert head.startswith(b"POST /llm/v1/completions HTTP/1.1\r\nHost: example.org\r\n")
    assert b"Authorization: Bearer secret" in head
    body = json.loads(data)
    assert (body["prompt"], body["max_tokens"], body["top_k"]) == ("Hi", 3, 1)
    assert "ignore_eos" not in body


def test_prompts_share_what_the_scenario_says() -> None:
    shared = Scenario("D", "shared", 2, 3, prompt_tokens=30, shared=20)
    texts = list(shared.prompts(Prompts.of_words(), 1))
    beginnings = {tuple(text.split()[:20]) for text in texts}
    assert len(beginnings) == 1
    assert len({text.split()[20:][0] for text in texts}) > 1
    assert beginnings != {
        tuple(text.split()[:20]) for text in shared.prompts(Prompts.of_words(), 2)
    }
