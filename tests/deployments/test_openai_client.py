"""The official client, over a socket and over ASGI, against the application on mock engines."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import httpx2
import openai
import pytest
from openai.types.chat import ChatCompletionMessageParam
from starlette.applications import Starlette

from models.mock import MockEngine
from tests.deployments.serving import eventually, listening, make_app

PIECES = ["Hel", "lo", " ", "wor", "ld"]
MESSAGES: list[ChatCompletionMessageParam] = [{"role": "user", "content": "Hello there"}]


def make() -> Starlette:
    return make_app(
        MockEngine("mock", pieces=PIECES, cached_tokens=1),
        MockEngine("broken", pieces=PIECES, failure="failed", fail_after=2),
        MockEngine("busy", failure="busy", retry_after=0.01),
        MockEngine("short", max_context=1),
        api_keys=["sk-one"],
    )


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with listening(make()) as url:
        yield f"{url}/v1"


@pytest.fixture
def sync(url: str) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=url, api_key="sk-one") as client:
        yield client


@pytest.fixture
def over_asgi() -> openai.AsyncOpenAI:
    http = httpx2.AsyncClient(transport=httpx2.ASGITransport(make()))
    return openai.AsyncOpenAI(base_url="http://test/v1", api_key="sk-one", http_client=http)


def test_models(sync: openai.OpenAI) -> None:
    assert [model.id for model in sync.models.list()] == ["mock", "broken", "busy", "short"]
    assert sync.models.retrieve("mock").owned_by == "stepserve"


def test_a_chat(sync: openai.OpenAI) -> None:
    answer = sync.chat.completions.create(model="mock", messages=MESSAGES, n=2)
    assert [choice.message.content for choice in answer.choices] == ["Hello world"] * 2
    assert answer.usage is not None
    assert answer.usage.prompt_tokens_details is not None
    assert answer.usage.prompt_tokens_details.cached_tokens == 1
    assert answer._request_id


def test_a_streamed_chat(sync: openai.OpenAI) -> None:
    stream = sync.chat.completions.create(
        model="mock", messages=MESSAGES, stream=True, stream_options={"include_usage": True}
    )
    *chunks, last = list(stream)
    assert [chunk.choices[0].delta.content for chunk in chunks] == ["", *PIECES, None]
    assert chunks[-1].choices[0].finish_reason == "stop"
    assert last.usage is not None
    assert last.usage.completion_tokens == len(PIECES)


def test_the_stream_helper(sync: openai.OpenAI) -> None:
    with sync.chat.completions.stream(model="mock", messages=MESSAGES) as stream:
        deltas = [event.delta for event in stream if event.type == "content.delta"]
        assert "".join(deltas) == "Hello world"
        assert stream.get_final_completion().choices[0].message.content == "Hello world"


def test_completions(sync: openai.OpenAI) -> None:
    answer = sync.completions.create(model="mock", prompt=["a", "b"])
    assert [choice.text for choice in answer.choices] == ["Hello world"] * 2
    stream = sync.completions.create(model="mock", prompt=[1, 2, 3], stream=True)
    assert "".join(chunk.choices[0].text for chunk in stream) == "Hello world"


def test_a_raw_response(sync: openai.OpenAI) -> None:
    headers = {"x-request-id": "mine"}
    raw = sync.chat.completions.with_raw_response.create(
        model="mock", messages=MESSAGES, extra_headers=headers
    )
    assert raw.headers["x-request-id"] == "mine"
    assert raw.parse().choices[0].message.content == "Hello world"


def test_extensions(sync: openai.OpenAI) -> None:
    answer = sync.chat.completions.create(
        model="mock", messages=MESSAGES, max_tokens=12, extra_body={"ignore_eos": True, "top_k": 4}
    )
    assert answer.usage is not None
    assert answer.usage.completion_tokens == 12


@pytest.mark.parametrize(
    ("model", "error", "code"),
    [
        ("other", openai.NotFoundError, "model_not_found"),
        ("short", openai.BadRequestError, "context_length_exceeded"),
    ],
)
def test_errors_are_raised(
    sync: openai.OpenAI, model: str, error: type[openai.APIStatusError], code: str
) -> None:
    for stream in (False, True):
        with pytest.raises(error) as caught:
            sync.chat.completions.create(model=model, messages=MESSAGES, stream=stream)
        assert caught.value.code == code
        assert caught.value.type == "invalid_request_error"


def test_a_wrong_key_is_raised(url: str) -> None:
    with openai.OpenAI(base_url=url, api_key="sk-two") as client:
        with pytest.raises(openai.AuthenticationError) as caught:
            client.models.list()
        assert caught.value.code == "invalid_api_key"


def test_busy_is_tried_again_and_raised(sync: openai.OpenAI) -> None:
    with pytest.raises(openai.InternalServerError) as caught:
        sync.with_options(max_retries=1).completions.create(model="busy", prompt="x")
    assert caught.value.status_code == 503
    assert caught.value.response.headers["retry-after"] == "1"


def test_an_error_in_the_stream_is_raised(sync: openai.OpenAI) -> None:
    stream = sync.chat.completions.create(model="broken", messages=MESSAGES, stream=True)
    texts = [next(stream).choices[0].delta.content for _ in range(3)]
    with pytest.raises(openai.APIError, match="The mock engine failed") as caught:
        next(stream)
    assert texts == ["", *PIECES[:2]]
    assert caught.value.type == "server_error"


async def test_the_asynchronous_client(url: str, over_asgi: openai.AsyncOpenAI) -> None:
    async with openai.AsyncOpenAI(base_url=url, api_key="sk-one") as client:
        for one in (client, over_asgi):
            stream = await one.chat.completions.create(model="mock", messages=MESSAGES, stream=True)
            texts = [chunk.choices[0].delta.content or "" async for chunk in stream]
            assert "".join(texts) == "Hello world"


async def test_many_streams_at_once(url: str) -> None:
    async with openai.AsyncOpenAI(base_url=url, api_key="sk-one") as client:

        async def ask(number: int) -> str:
            stream = await client.completions.create(
                model="mock", prompt=str(number), stream=True, max_tokens=1 + number % 5
            )
            return "".join([chunk.choices[0].text async for chunk in stream])

        texts = await asyncio.gather(*(ask(number) for number in range(32)))
    assert texts == ["".join(PIECES[: 1 + number % 5]) for number in range(32)]


async def test_a_closed_stream_frees_the_engine() -> None:
    engine = MockEngine("mock", inter_token_s=0.002)
    with listening(make_app(engine)) as url:
        async with openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="x") as client:
            stream = await client.chat.completions.create(
                model="mock", messages=MESSAGES, stream=True, extra_body={"ignore_eos": True}
            )
            await anext(aiter(stream))
            await stream.close()
        await eventually(lambda: engine.live == 0)
