"""Limits of keys through the whole application, over scripted models."""

from __future__ import annotations

import logging
from typing import Any

import httpx
import pytest
from pydantic import ValidationError
from starlette.applications import Starlette

from deployments.ingress import create_app
from deployments.openai.users import opaque
from deployments.rates.counts import MemoryCounts
from deployments.rates.refusals import Refusals
from models.errors import TooLong
from models.mock import MockEngine
from tests.deployments.schemas import check
from tests.deployments.serving import (
    HELLO,
    Counting,
    Exchange,
    Probes,
    TokenizingMock,
    client,
    events,
    eventually,
    make_app,
    make_settings,
    post,
)

PIECES = ["Hello", " ", "wor", "ld"]
CHAT = ("/v1/chat/completions", {"messages": HELLO, "max_tokens": 8})
TEXT = ("/v1/completions", {"prompt": [1, 2], "max_tokens": 8})
RESPONSE = ("/v1/responses", {"input": "Hi", "max_output_tokens": 8})
MESSAGE = ("/v1/messages", {"messages": HELLO, "max_tokens": 8})
EMBEDDINGS = ("/v1/embeddings", {"input": "abcd"})
OPENAIS, ANTHROPICS = "x-ratelimit-remaining-{}", "anthropic-ratelimit-{}-remaining"


def limited(*engines: Any, **limits: Any) -> Starlette:
    engines = engines or (MockEngine("mock", pieces=PIECES),)
    return make_app(*engines, api_keys=["one", "two named"], rate_limits=limits)


async def ask(
    app: Starlette, route: tuple[str, Any], key: str = "one", **body: Any
) -> httpx.Response:
    path, given = route
    model = "counting" if route is EMBEDDINGS else "mock"
    return await post(app, path, {"model": model, **given, **body}, authorization=f"Bearer {key}")


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("route", "name"),
    [(CHAT, OPENAIS), (TEXT, OPENAIS), (RESPONSE, OPENAIS), (MESSAGE, ANTHROPICS)],
)
async def test_every_answer_tells_what_is_left(
    route: tuple[str, Any], name: str, stream: bool
) -> None:
    app = limited(requests_per_minute=3, tokens_per_minute=10_000)
    left = []
    for _ in range(2):
        answer = await ask(app, route, stream=stream)
        assert answer.status_code == 200, answer.text
        assert answer.headers[name.format("requests")] in ("2", "1")
        left.append(int(answer.headers[name.format("tokens")]))
    assert 9_900 < left[1] < left[0] < 10_000
    answer = await ask(app, route, stream=stream, temperature="high")
    assert answer.status_code == 400
    assert answer.headers[name.format("requests")] == "1"
    assert (await ask(app, route)).status_code == 200
    refused = await ask(app, route, stream=stream)
    assert refused.status_code == 429
    assert refused.headers[name.format("requests")] == "0"
    assert 1 <= int(refused.headers["retry-after"]) <= 120
    error = refused.json()["error"]
    if name is OPENAIS:
        assert (error["type"], error["code"]) == ("requests", "rate_limit_exceeded")
    else:
        assert refused.json()["type"] == "error"
        assert error["type"] == "rate_limit_error"
    assert "3 requests per minute: 3 are used" in error["message"]
    if name is OPENAIS:
        check("ErrorResponse", refused.json())


async def test_embeddings_are_charged_for_their_tokens() -> None:
    app = limited(Counting("counting"), tokens_per_minute=100)
    answer = await ask(app, EMBEDDINGS)
    assert answer.json()["usage"]["total_tokens"] == 4
    assert answer.headers["x-ratelimit-remaining-tokens"] == "96"
    refused = await ask(app, EMBEDDINGS, input=[[1] * 60, [1] * 41])
    assert refused.status_code == 429
    assert refused.headers["x-should-retry"] == "false"


async def test_whole_answers_and_streams_are_charged_for_what_they_used() -> None:
    app = limited(tokens_per_minute=10_000)
    used = 0
    for stream in (False, True):
        options: Any = {"stream_options": {"include_usage": True}} if stream else {}
        answer = await ask(app, TEXT, stream=stream, n=3, max_tokens=500, **options)
        usage = (events(answer.text)[-2] if stream else answer.json())["usage"]
        used += usage["total_tokens"]
        if not stream:
            assert answer.headers["x-ratelimit-remaining-tokens"] == str(10_000 - used)
    look = await ask(app, TEXT, temperature="high")
    assert look.headers["x-ratelimit-remaining-tokens"] == str(10_000 - used)


async def test_token_ids_are_shown_to_those_alone_who_ask() -> None:
    app = limited(tokens_per_minute=10_000)
    for stream in (False, True):
        assert "token_ids" not in (await ask(app, CHAT, stream=stream)).text
        assert "token_ids" in (await ask(app, CHAT, stream=stream, return_token_ids=True)).text


async def test_a_client_that_leaves_is_charged_for_what_was_written() -> None:
    counts = MemoryCounts()
    engine = MockEngine("mock", inter_token_s=0.001)
    settings = make_settings(
        engine, api_keys=["one"], rate_limits={"tokens_per_minute": 10_000, "requests_at_once": 1}
    )
    app = create_app({"mock": engine}, settings, Probes(), counts=counts)
    body = {"model": "mock", "prompt": [1, 2, 3], "max_tokens": 4000, "ignore_eos": True}
    exchange = Exchange(app, TEXT[0], {**body, "stream": True}, key="one")
    said = 0
    while said < 5:
        message = await exchange.next()
        said += message.get("body", b"").count(b'"text":')
    await exchange.leave()
    answer = await ask(app, TEXT, max_tokens=1)
    assert answer.status_code == 200
    charged = 10_000 - int(answer.headers["x-ratelimit-remaining-tokens"]) - 3
    assert said + 3 <= charged < 1000


async def test_who_leaves_before_an_answer_is_charged_for_the_prompt() -> None:
    engine = MockEngine("mock", first_token_s=30)
    app = limited(engine, tokens_per_minute=10_000, requests_at_once=1)
    body = {"model": "mock", "prompt": [1] * 50, "max_tokens": 4000}
    exchange = Exchange(app, TEXT[0], body, key="one")
    await eventually(lambda: engine.live)
    crowded = await ask(app, TEXT)
    assert crowded.json()["error"]["message"].startswith("This API key is limited to 1 requests at")
    assert crowded.headers["x-ratelimit-remaining-tokens"] == str(10_000 - 50 - 4000)
    await exchange.leave()
    look = await ask(app, TEXT, temperature="high")
    assert look.headers["x-ratelimit-remaining-tokens"] == "9950"


@pytest.mark.parametrize("failure", ["busy", "invalid", "too_long", "failed", "crash"])
@pytest.mark.parametrize("stream", [False, True])
async def test_a_request_that_is_refused_gives_all_back(failure: Any, stream: bool) -> None:
    engine = MockEngine("mock", failure=failure)
    limits = {"requests_per_minute": 5, "tokens_per_minute": 1000, "requests_at_once": 1}
    app = limited(engine, **limits)
    for _ in range(3):
        answer = await ask(app, CHAT, stream=stream)
        assert answer.status_code in (400, 500, 503)
        assert answer.headers["x-ratelimit-remaining-requests"] == "5"
        assert answer.headers["x-ratelimit-remaining-tokens"] == "1000"


async def test_a_broken_stream_is_charged_for_what_it_used() -> None:
    app = limited(MockEngine("mock", failure="failed", fail_after=3), tokens_per_minute=1000)
    broken = await ask(app, TEXT, stream=True)
    assert "server_error" in broken.text
    look = await ask(app, TEXT, temperature="high")
    assert look.headers["x-ratelimit-remaining-tokens"] == str(1000 - 2 - 3)


async def test_a_prompt_that_only_seems_too_large_is_counted() -> None:
    engine = Counted("mock", pieces=PIECES)
    app = limited(engine, tokens_per_minute=100)
    prompt = "x" * 4000
    for tokens, status in ((50, 200), (99, 429)):
        engine.tokens = tokens
        answer = await ask(app, TEXT, prompt=prompt, max_tokens=8)
        assert answer.status_code == status, answer.text
    assert answer.headers["x-should-retry"] == "false"
    assert "107: 99 for its prompt and 8 for its answer" in answer.json()["error"]["message"]


class Counted(TokenizingMock):
    """Whatever the prompt, its tokenizer finds so many tokens."""

    tokens = 0

    async def tokenize(self, prompt: Any, *, special_tokens: bool = True) -> tuple[int, ...]:
        return (0,) * self.tokens


@pytest.mark.parametrize(
    ("route", "param", "message"),
    [
        (CHAT, "messages", "context length is 64 tokens"),
        (TEXT, "prompt", "context length is 64 tokens"),
        (RESPONSE, "input", "context length is 64 tokens"),
        (MESSAGE, None, "prompt is too long: 65 tokens > 64 maximum"),
    ],
)
async def test_what_cannot_be_counted_is_told_in_the_words_of_its_route(
    route: tuple[str, Any], param: str | None, message: str
) -> None:
    app = limited(Uncountable("mock"), tokens_per_minute=9, requests_per_minute=5)
    answer = await ask(app, route)
    assert answer.status_code == 400
    error = answer.json()["error"]
    assert message in error["message"]
    assert error.get("param") == param
    remaining = ANTHROPICS if route is MESSAGE else OPENAIS
    assert answer.headers[remaining.format("requests")] == "5"


class Uncountable(TokenizingMock):
    """Its tokenizer reads no more than a context."""

    async def tokenize(self, prompt: Any, *, special_tokens: bool = True) -> tuple[int, ...]:
        raise TooLong(65, 64)


async def test_a_limit_of_the_answer_beyond_the_context_is_the_context() -> None:
    app = limited(MockEngine("mock", pieces=PIECES, max_context=64), tokens_per_minute=100)
    assert (await ask(app, TEXT, max_tokens=10**6)).status_code == 200


async def test_keys_have_their_own_counts_and_names_their_own_limits() -> None:
    app = limited(
        requests_per_minute=1,
        tokens_per_minute=1000,
        keys=[{"name": "named", "requests_per_minute": None, "tokens_per_minute": 5000}],
    )
    assert (await ask(app, CHAT)).status_code == 200
    assert (await ask(app, CHAT)).status_code == 429
    for _ in range(3):
        answer = await ask(app, CHAT, key="two")
        assert answer.status_code == 200
    assert answer.headers["x-ratelimit-limit-tokens"] == "5000"
    assert "x-ratelimit-limit-requests" not in answer.headers


async def test_keys_of_one_name_share_its_limits() -> None:
    app = make_app(api_keys=["old ann", "new ann", "x"], rate_limits={"requests_per_minute": 1})
    assert (await ask(app, CHAT, key="old")).status_code == 200
    assert (await ask(app, CHAT, key="new")).status_code == 429
    assert (await ask(app, CHAT, key="x")).status_code == 200


async def test_who_has_no_limits_is_told_of_none() -> None:
    app = limited(keys=[{"name": "named", "requests_per_minute": 1}])
    for _ in range(3):
        answer = await ask(app, CHAT)
        assert answer.status_code == 200
        assert not [name for name in answer.headers if "ratelimit" in name]
    assert (await ask(app, CHAT, key="two")).status_code == 200
    assert (await ask(app, CHAT, key="two")).status_code == 429


async def test_other_routes_are_not_limited() -> None:
    app = limited(TokenizingMock("mock"), requests_per_minute=1)
    headers = {"authorization": "Bearer one"}
    async with client(app) as http:
        for _ in range(3):
            assert (await http.get("/v1/models", headers=headers)).status_code == 200
            body = {"model": "mock", "prompt": "Hi"}
            assert (await http.post("/tokenize", json=body, headers=headers)).status_code == 200


async def test_applications_that_share_counts_share_limits() -> None:
    counts, refusals = MemoryCounts(), [Refusals(), Refusals()]
    engine = MockEngine("mock", pieces=PIECES)
    settings = make_settings(
        engine, api_keys=["one", "two named"], rate_limits={"requests_per_minute": 1}
    )
    one, other = (
        create_app({"mock": engine}, settings, Probes(), counts=counts, refusals=noted)
        for noted in refusals
    )
    assert (await ask(one, CHAT)).status_code == 200
    assert (await ask(other, CHAT)).status_code == 429
    assert (await ask(other, CHAT, key="two")).status_code == 200
    assert (await ask(one, CHAT, key="two")).status_code == 429
    assert refusals[0].by_key_and_kind == {("named", "requests"): 1}
    assert refusals[1].by_key_and_kind == {(opaque("one"), "requests"): 1}


async def test_the_log_names_keys_and_never_tells_them(caplog: pytest.LogCaptureFixture) -> None:
    app = make_app(api_keys=["sk-secret ann", "sk-other"], rate_limits={"requests_per_minute": 1})
    with caplog.at_level(logging.INFO):
        for key in ("sk-secret", "sk-other"):
            for _ in range(2):
                await ask(app, CHAT, key=key)
    refused = [line for line in caplog.messages if "error=rate_limit_exceeded" in line]
    assert [line.rpartition(" ")[2] for line in refused] == ["key=ann", f"key={opaque('sk-other')}"]
    assert "sk-" not in caplog.text


async def test_counts_that_are_gone_let_requests_in() -> None:
    refusals = Refusals()
    engine = MockEngine("mock", pieces=PIECES)
    settings = make_settings(
        engine,
        api_keys=["one"],
        rate_limits={"requests_per_minute": 1, "storage": "unix:///tmp/nobody/listens/here"},
    )
    app = create_app({"mock": engine}, settings, Probes(), refusals=refusals)
    for _ in range(3):
        answer = await ask(app, CHAT)
        assert answer.status_code == 200
        assert not [name for name in answer.headers if "ratelimit" in name]
    assert refusals.uncounted == 3
    assert ("stepserve_requests_uncounted_total", (), 3.0) in refusals.samples()


def test_limits_that_hold_nobody_are_errors() -> None:
    with pytest.raises(ValidationError, match="are of API keys"):
        make_app(rate_limits={"requests_per_minute": 1})
    with pytest.raises(ValueError, match="no API key is named ann"):
        limited(keys=[{"name": "ann", "requests_per_minute": 1}])
    with pytest.raises(ValidationError, match="twice"):
        limited(keys=[{"name": "named"}, {"name": "named"}])
    with pytest.raises(ValidationError, match="of no use"):
        limited(storage="redis://127.0.0.1")
    with pytest.raises(ValidationError, match="storage"):
        limited(requests_per_minute=1, storage="memcached://127.0.0.1")


async def test_web_pages_see_the_headers() -> None:
    origin = "https://page.example"
    app = make_app(api_keys=["one"], rate_limits={"requests_per_minute": 9}, cors_origins=[origin])
    headers = {"authorization": "Bearer one", "origin": origin}
    answer = await post(app, CHAT[0], {"model": "mock", **CHAT[1]}, **headers)
    assert "x-ratelimit-remaining-requests" in answer.headers["access-control-expose-headers"]
