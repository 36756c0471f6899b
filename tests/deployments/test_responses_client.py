"""Responses through the official client, over a socket."""

from __future__ import annotations

from collections.abc import Iterator

import openai
import pytest

from configs.settings import ModelSettings
from models.build import build_scheduled
from models.mock import MockEngine
from tests.deployments.serving import listening, make_app

PIECES = ["Hel", "lo", " ", "wor", "ld"]


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    settings = ModelSettings(name="counting", factory="tests.models.counting:Counting")
    with build_scheduled(settings) as counting:
        broken = MockEngine("broken", pieces=PIECES, failure="failed", fail_after=2)
        app = make_app(MockEngine("mock", pieces=PIECES), broken, counting)
        with listening(app) as url:
            yield f"{url}/v1"


@pytest.fixture
def sync(url: str) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=url, api_key="none", max_retries=0) as client:
        yield client


def test_a_response(sync: openai.OpenAI) -> None:
    response = sync.responses.create(model="mock", input="Hello there", instructions="Be brief.")
    assert response.output_text == "Hello world"
    assert response.status == "completed"
    assert response.usage is not None
    assert (response.usage.input_tokens, response.usage.output_tokens) == (4, 5)


def test_raw_events(sync: openai.OpenAI) -> None:
    stream = sync.responses.create(model="mock", input="Hello", stream=True)
    events = list(stream)
    deltas = [event.delta for event in events if event.type == "response.output_text.delta"]
    assert deltas == PIECES
    assert events[-1].type == "response.completed"
    assert events[-1].response.output_text == "Hello world"


def test_the_stream_helper(sync: openai.OpenAI) -> None:
    with sync.responses.stream(model="mock", input="Hello") as stream:
        kinds = [event.type for event in stream]
        assert stream.get_final_response().output_text == "Hello world"
    assert kinds[-1] == "response.completed"


async def test_the_asynchronous_client(url: str) -> None:
    async with openai.AsyncOpenAI(base_url=url, api_key="none") as client:
        response = await client.responses.create(model="mock", input="Hello")
        assert response.output_text == "Hello world"
        async with client.responses.stream(model="mock", input="Hello") as stream:
            assert (await stream.get_final_response()).output_text == "Hello world"


def test_a_conversation(sync: openai.OpenAI) -> None:
    first = sync.responses.create(model="mock", input="Hello")
    assert sync.responses.retrieve(first.id).output_text == "Hello world"
    second = sync.responses.create(model="mock", input="Go on", previous_response_id=first.id)
    assert second.previous_response_id == first.id
    assert second.usage is not None
    assert second.usage.input_tokens == 5
    again = sync.responses.create(
        model="mock",
        input=[
            {"role": "user", "content": "Hello"},
            *(item.to_dict() for item in first.output),  # type: ignore[list-item]
            {"role": "user", "content": "Go on"},
        ],
    )
    assert again.usage is not None
    assert again.usage.input_tokens == 5
    assert [item.type for item in sync.responses.input_items.list(second.id)] == ["message"]
    sync.responses.delete(first.id)
    with pytest.raises(openai.NotFoundError):
        sync.responses.retrieve(first.id)
    with pytest.raises(openai.BadRequestError, match="synchronous"):
        sync.responses.cancel(second.id)


def test_tokens_are_counted(sync: openai.OpenAI) -> None:
    count = sync.responses.input_tokens.count(model="counting", input="Hi")
    response = sync.responses.create(model="counting", input="Hi", max_output_tokens=16)
    assert response.usage is not None
    assert count.input_tokens == response.usage.input_tokens


def test_a_failure_in_the_stream(sync: openai.OpenAI) -> None:
    *_, last = sync.responses.create(model="broken", input="Hello", stream=True)
    assert last.type == "response.failed"
    assert last.response.error is not None
    assert last.response.error.message == "The mock engine failed."


def test_an_unsupported_parameter_is_raised(sync: openai.OpenAI) -> None:
    with pytest.raises(openai.BadRequestError) as caught:
        sync.responses.create(model="mock", input="Hello", background=True)
    assert caught.value.param == "background"
