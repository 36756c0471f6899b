"""The official client against ``serve run`` with a chat model and an embedding model in one app."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import numpy as np
import openai
import pytest
from openai.types.chat import ChatCompletionMessageParam
from prometheus_client.parser import text_string_to_metric_families

from tests.deployments.schemas import check
from tests.serving import Server

pytestmark = pytest.mark.slow

CHAT, EMBED = "smollm2-135m-instruct", "all-minilm-l6-v2"
QUESTION: list[ChatCompletionMessageParam] = [
    {"role": "user", "content": "What is the capital of France?"}
]


@pytest.fixture(scope="module")
def client(embeddings_server: Server) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(
        base_url=f"{embeddings_server.url}/v1", api_key="none", timeout=300
    ) as client:
        yield client


def vectors(client: openai.OpenAI, texts: list[str]) -> np.ndarray:
    answer = client.embeddings.create(model=EMBED, input=texts)
    return np.array([one.embedding for one in answer.data])


def running(client: openai.OpenAI) -> float:
    text = client.get(str(client.base_url.copy_with(path="/metrics")), cast_to=str)
    samples = [s for f in text_string_to_metric_families(text) for s in f.samples]
    name, labels = "stepserve_requests_running", {"model": EMBED}
    return sum(s.value for s in samples if s.name == name and s.labels == labels)


def test_each_model_does_what_it_can_and_says_what_it_cannot(client: openai.OpenAI) -> None:
    assert {model.id for model in client.models.list()} == {CHAT, EMBED}
    answer = client.chat.completions.create(model=CHAT, messages=QUESTION, temperature=0)
    assert "Paris" in (answer.choices[0].message.content or "")
    embedded = client.embeddings.create(model=EMBED, input="Paris", encoding_format="float")
    check("CreateEmbeddingResponse", embedded.model_dump(mode="json", exclude_unset=True))
    assert embedded.usage.prompt_tokens == 3
    with pytest.raises(openai.BadRequestError, match="makes embeddings"):
        client.chat.completions.create(model=EMBED, messages=QUESTION)
    with pytest.raises(openai.BadRequestError, match="generates text"):
        client.embeddings.create(model=CHAT, input="Paris")


def test_like_sentences_are_closer(client: openai.OpenAI) -> None:
    pairs = [
        ("A cat sits on the mat.", "A feline rests on a rug."),
        ("The stock market fell today.", "Share prices dropped this afternoon."),
        ("How do I bake bread?", "A recipe for a loaf, please."),
    ]
    near = vectors(client, [one for one, _ in pairs]) @ vectors(client, [two for _, two in pairs]).T
    assert (near.argmax(1) == np.arange(len(pairs))).all()
    np.testing.assert_allclose(np.linalg.norm(vectors(client, ["any"]), axis=1), 1, atol=1e-5)


def test_an_input_that_is_too_long_names_both_numbers(client: openai.OpenAI) -> None:
    with pytest.raises(openai.BadRequestError, match=r"256 tokens.*302 tokens") as caught:
        client.embeddings.create(model=EMBED, input="word " * 300)
    assert caught.value.code == "context_length_exceeded"
    cut = client.embeddings.create(
        model=EMBED, input="word " * 300, extra_body={"truncate_prompt_tokens": -1}
    )
    assert cut.usage.prompt_tokens == 256


async def test_clients_that_leave_leave_nothing_behind(
    embeddings_server: Server, client: openai.OpenAI
) -> None:
    texts = [f"{number} " + "word " * 200 for number in range(64)]
    async with openai.AsyncOpenAI(
        base_url=f"{embeddings_server.url}/v1", api_key="none"
    ) as impatient:

        async def leave(after_s: float) -> None:
            asked = impatient.embeddings.create(model=EMBED, input=texts)
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(asked, after_s)

        await asyncio.gather(*(leave(0.3 + number / 10) for number in range(5)))
    for _ in range(100):
        if not running(client):
            break
        await asyncio.sleep(0.1)
    assert running(client) == 0
    assert len(vectors(client, ["still here"])) == 1


def test_what_is_served_is_told(embeddings_server: Server) -> None:
    log = embeddings_server.log()
    assert f"{EMBED}: max_context 256, dimensions 384" in log
