"""The official clients at their limits, over a socket."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import anthropic
import openai
import pytest

from deployments.ingress import create_app
from deployments.rates.refusals import Refusals
from models.mock import MockEngine
from tests.deployments.serving import Probes, listening, make_settings

PIECES = ["Hel", "lo", " ", "wor", "ld"]
MESSAGES: Any = [{"role": "user", "content": "Hello there"}]
LIMITS = {
    "tokens_per_minute": 1000,
    "keys": [
        {"name": "few", "requests_per_minute": 1, "tokens_per_minute": None},
        {"name": "few-too", "requests_per_minute": 1},
        {"name": "lone", "requests_at_once": 1},
    ],
}
refusals = Refusals()


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    engine = MockEngine("mock", pieces=PIECES, first_token_s=0.2)
    settings = make_settings(
        engine,
        api_keys=["sk-1 few", "sk-2 lone", "sk-3 few-too", "sk-4 other"],
        rate_limits=LIMITS,
    )
    with listening(create_app({"mock": engine}, settings, Probes(), refusals=refusals)) as url:
        yield url


@pytest.fixture
def openais(url: str) -> openai.OpenAI:
    return openai.OpenAI(base_url=f"{url}/v1", api_key="sk-1", max_retries=0)


def test_openais_client_is_told_its_limits(openais: openai.OpenAI) -> None:
    create = openais.chat.completions.with_raw_response.create
    stream = create(model="mock", messages=MESSAGES, stream=True)
    assert stream.headers["x-ratelimit-remaining-requests"] == "0"
    assert "".join(chunk.choices[0].delta.content or "" for chunk in stream.parse())
    with pytest.raises(openai.RateLimitError) as caught:
        create(model="mock", messages=MESSAGES)
    error = caught.value
    assert (error.status_code, error.code, error.type) == (429, "rate_limit_exceeded", "requests")
    assert float(error.response.headers["retry-after-ms"]) > 1000
    assert "1 requests per minute" in error.message


async def test_both_clients_try_again_when_they_are_told(url: str) -> None:
    """One at once: the second and the third wait for a second or more, and then get in."""
    before = refusals.by_key_and_kind["lone", "requests_at_once"]
    theirs = anthropic.AsyncAnthropic(base_url=url, api_key="sk-2", max_retries=5)
    async with theirs, openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="sk-2") as ours:
        chat = ours.with_options(max_retries=5).chat.completions.create
        message, one, other = await asyncio.gather(
            theirs.messages.create(model="mock", max_tokens=9, messages=MESSAGES),
            chat(model="mock", messages=MESSAGES),
            chat(model="mock", messages=MESSAGES),
        )
    assert message.usage.output_tokens == 5
    assert one.choices[0].message.content == other.choices[0].message.content == "Hello world"
    assert refusals.by_key_and_kind["lone", "requests_at_once"] >= before + 2


def test_no_client_tries_again_what_never_fits(url: str) -> None:
    ours = openai.OpenAI(base_url=f"{url}/v1", api_key="sk-4")
    theirs = anthropic.Anthropic(base_url=url, api_key="sk-4")
    with ours, pytest.raises(openai.RateLimitError, match="1000 tokens per minute"):
        ours.completions.create(model="mock", prompt="x", max_tokens=1001)
    with theirs, pytest.raises(anthropic.RateLimitError, match="1000 tokens per minute"):
        theirs.messages.create(model="mock", max_tokens=1001, messages=MESSAGES)
    assert refusals.by_key_and_kind["other", "tokens"] == 2


def test_anthropics_client_is_told_its_limits(url: str) -> None:
    with anthropic.Anthropic(base_url=url, api_key="sk-3", max_retries=0) as client:
        create = client.messages.with_raw_response.create
        raw = create(model="mock", max_tokens=900, messages=MESSAGES)
        usage = raw.parse().usage
        left = 1000 - usage.input_tokens - usage.output_tokens
        assert raw.headers["anthropic-ratelimit-tokens-limit"] == "1000"
        assert raw.headers["anthropic-ratelimit-tokens-remaining"] == str(left)
        assert raw.headers["anthropic-ratelimit-tokens-reset"].endswith("Z")
        with pytest.raises(anthropic.RateLimitError) as caught:
            create(model="mock", max_tokens=9, messages=MESSAGES)
    body: Any = caught.value.body
    assert body["error"]["type"] == "rate_limit_error"
    assert int(caught.value.response.headers["retry-after"]) > 1
