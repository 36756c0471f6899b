"""The official client, over a socket and over ASGI."""

from __future__ import annotations

from collections.abc import Iterator

import anthropic
import httpx2
import pytest
from anthropic.types import MessageParam, TextBlock
from starlette.applications import Starlette

from configs.settings import ModelSettings
from models.build import build_scheduled
from models.mock import MockEngine
from models.scheduled import Scheduled
from tests.deployments.serving import listening, make_app

PIECES = ["Hel", "lo", " ", "wor", "ld"]
MESSAGES: list[MessageParam] = [{"role": "user", "content": "Hello there"}]


@pytest.fixture(scope="module")
def counting() -> Iterator[Scheduled]:
    settings = ModelSettings(name="counting", factory="tests.models.counting:Counting")
    with build_scheduled(settings) as engine:
        yield engine


@pytest.fixture(scope="module")
def app(counting: Scheduled) -> Starlette:
    return make_app(
        MockEngine("mock", pieces=PIECES, cached_tokens=1),
        MockEngine("broken", pieces=PIECES, failure="failed", fail_after=2),
        MockEngine("busy", failure="busy", retry_after=0.01),
        MockEngine("short", max_context=1),
        counting,
        api_keys=["sk-one"],
    )


@pytest.fixture(scope="module")
def url(app: Starlette) -> Iterator[str]:
    with listening(app) as url:
        yield url


@pytest.fixture
def sync(url: str) -> Iterator[anthropic.Anthropic]:
    with anthropic.Anthropic(base_url=url, api_key="sk-one", max_retries=0) as client:
        yield client


@pytest.fixture
def over_asgi(app: Starlette) -> anthropic.AsyncAnthropic:
    http = httpx2.AsyncClient(transport=httpx2.ASGITransport(app))
    return anthropic.AsyncAnthropic(base_url="http://test", api_key="sk-one", http_client=http)


def text_of(message: anthropic.types.Message) -> str:
    return "".join(block.text for block in message.content if isinstance(block, TextBlock))


def test_a_message(sync: anthropic.Anthropic) -> None:
    message = sync.messages.create(
        model="mock",
        max_tokens=50,
        messages=MESSAGES,
        system=[{"type": "text", "text": "Be brief"}],
    )
    assert text_of(message) == "Hello world"
    assert (message.role, message.stop_reason) == ("assistant", "end_turn")
    usage = message.usage
    assert (usage.input_tokens, usage.cache_read_input_tokens, usage.output_tokens) == (3, 1, 5)
    assert message._request_id


def test_a_stop_sequence_is_reported(sync: anthropic.Anthropic) -> None:
    message = sync.messages.create(
        model="mock", max_tokens=50, messages=MESSAGES, stop_sequences=["wor"]
    )
    assert (message.stop_reason, message.stop_sequence) == ("stop_sequence", "wor")


def test_raw_events(sync: anthropic.Anthropic) -> None:
    stream = sync.messages.create(model="mock", max_tokens=50, messages=MESSAGES, stream=True)
    types = [event.type for event in stream]
    assert types[0] == "message_start"
    assert types[-2:] == ["message_delta", "message_stop"]


def test_the_stream_helper(sync: anthropic.Anthropic) -> None:
    with sync.messages.stream(model="mock", max_tokens=50, messages=MESSAGES) as stream:
        assert "".join(stream.text_stream) == "Hello world"
        message = stream.get_final_message()
    assert text_of(message) == "Hello world"
    assert (message.stop_reason, message.usage.output_tokens) == ("end_turn", 5)


async def test_the_asynchronous_client(url: str, over_asgi: anthropic.AsyncAnthropic) -> None:
    async with anthropic.AsyncAnthropic(base_url=url, api_key="sk-one") as client:
        for one in (client, over_asgi):
            async with one.messages.stream(model="mock", max_tokens=9, messages=MESSAGES) as stream:
                assert "".join([text async for text in stream.text_stream]) == "Hello world"


def test_tokens_are_counted(sync: anthropic.Anthropic) -> None:
    count = sync.messages.count_tokens(
        model="counting", messages=[{"role": "user", "content": "Hi"}], system="abc"
    )
    message = sync.messages.create(
        model="counting", max_tokens=1, messages=[{"role": "user", "content": "Hi"}], system="abc"
    )
    assert count.input_tokens == message.usage.input_tokens == 11


@pytest.mark.parametrize(
    ("model", "error", "words"),
    [
        ("other", anthropic.NotFoundError, "other"),
        ("short", anthropic.BadRequestError, "prompt is too long"),
        ("busy", anthropic.InternalServerError, "busy"),
    ],
)
def test_errors_are_raised(
    sync: anthropic.Anthropic, model: str, error: type[anthropic.APIStatusError], words: str
) -> None:
    with pytest.raises(error, match=words) as caught:
        sync.messages.create(model=model, max_tokens=5, messages=MESSAGES)
    assert caught.value.request_id


def test_a_wrong_key_is_raised(url: str) -> None:
    client = anthropic.Anthropic(base_url=url, api_key="sk-two")
    with client, pytest.raises(anthropic.AuthenticationError):
        client.messages.create(model="mock", max_tokens=5, messages=MESSAGES)


def test_a_token_in_the_other_header(url: str) -> None:
    with anthropic.Anthropic(base_url=url, auth_token="sk-one", api_key=None) as client:
        assert client.messages.create(model="mock", max_tokens=5, messages=MESSAGES).id


def test_an_error_in_the_stream_is_raised(sync: anthropic.Anthropic) -> None:
    texts: list[str] = []
    stream = sync.messages.stream(model="broken", max_tokens=9, messages=MESSAGES)
    with pytest.raises(anthropic.APIStatusError, match="The mock engine failed"), stream as told:
        texts.extend(told.text_stream)
    assert texts == PIECES[:2]
