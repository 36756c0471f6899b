"""The official client against ``serve run`` on the real default model."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import openai
import pytest
import torch
from openai.types.chat import ChatCompletionMessageParam
from prometheus_client.parser import text_string_to_metric_families
from transformers import AutoModelForCausalLM, AutoTokenizer

from tests.deployments.schemas import check
from tests.serving import Server

pytestmark = pytest.mark.slow

MODEL = "smollm2-135m-instruct"
QUESTION: list[ChatCompletionMessageParam] = [
    {"role": "user", "content": "What is the capital of France?"}
]


@pytest.fixture(scope="module")
def client(default_server: Server) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{default_server.url}/v1", api_key="none") as client:
        yield client


@pytest.fixture
async def unhurried(default_server: Server) -> AsyncIterator[openai.AsyncOpenAI]:
    async with openai.AsyncOpenAI(
        base_url=f"{default_server.url}/v1", api_key="none", timeout=300
    ) as client:
        yield client


def metric(client: openai.OpenAI, name: str, **labels: str) -> float:
    text = client.get(str(client.base_url.copy_with(path="/metrics")), cast_to=str)
    samples = [s for f in text_string_to_metric_families(text) for s in f.samples]
    return sum(s.value for s in samples if s.name == name and labels.items() <= s.labels.items())


def test_an_answer_makes_sense_and_a_stream_tells_the_same(client: openai.OpenAI) -> None:
    whole = client.chat.completions.create(model=MODEL, messages=QUESTION, temperature=0)
    check("CreateChatCompletionResponse", whole.model_dump(mode="json", exclude_unset=True))
    assert "Paris" in (whole.choices[0].message.content or "")
    assert whole.choices[0].finish_reason == "stop"
    chunks = list(
        client.chat.completions.create(
            model=MODEL,
            messages=QUESTION,
            temperature=0,
            stream=True,
            stream_options={"include_usage": True},
        )
    )
    parts = [c.choices[0].delta.content or "" for c in chunks if c.choices]
    assert "".join(parts) == whole.choices[0].message.content
    assert whole.usage is not None
    assert chunks[-1].usage is not None
    assert chunks[-1].usage.completion_tokens == whole.usage.completion_tokens
    assert len({(c.id, c.created, c.model) for c in chunks}) == 1


def test_the_same_prompt_again_comes_from_the_prefix_cache(client: openai.OpenAI) -> None:
    prompt = "A long story that is told twice, word for word. " * 8
    first, second = (
        client.completions.create(model=MODEL, prompt=prompt, max_tokens=2) for _ in range(2)
    )
    for answer in (first, second):
        assert answer.usage is not None
        assert answer.usage.prompt_tokens_details is not None
    assert first.usage.prompt_tokens_details.cached_tokens == 0  # type: ignore[union-attr]
    assert second.usage.prompt_tokens_details.cached_tokens >= 64  # type: ignore[union-attr, operator]


def test_choices_of_one_seed_are_repeatable_and_share_a_prefill(client: openai.OpenAI) -> None:
    hits = metric(client, "stepserve_prefix_cache_hits_total")

    def ask() -> list[str]:
        answer = client.completions.create(
            model=MODEL, prompt="Once upon a time in a far away land, " * 6, n=3, seed=5
        )
        return [choice.text for choice in answer.choices]

    assert ask() == ask()
    assert len(set(ask())) > 1
    assert metric(client, "stepserve_prefix_cache_hits_total") > hits


@torch.inference_mode()
def test_greedy_text_is_what_transformers_finds_likeliest(
    client: openai.OpenAI, smollm2: Path
) -> None:
    """Each token, but for rounding: the server may compute in bfloat16."""
    tokenizer = AutoTokenizer.from_pretrained(smollm2)
    model = AutoModelForCausalLM.from_pretrained(smollm2, dtype=torch.float32)
    prompt = "The three most important inventions of the last century are"
    answer = client.completions.create(model=MODEL, prompt=prompt, max_tokens=48, temperature=0)
    read = len(tokenizer(prompt).input_ids)
    ids = tokenizer(prompt + answer.choices[0].text, return_tensors="pt").input_ids
    logits = model(ids).logits[0, read - 1 : -1]
    told = logits.gather(1, ids[0, read:, None])[:, 0]
    assert len(told) > 40
    assert (logits.amax(1) - told).max() < 0.2


async def test_32_streams_at_once_tell_what_each_tells_alone(
    unhurried: openai.AsyncOpenAI,
) -> None:
    async def tell(number: int) -> str:
        stream = await unhurried.completions.create(
            model=MODEL,
            prompt=f"Tale number {number}: there once was a",
            max_tokens=24,
            seed=number,
            temperature=0 if number % 2 else 0.8,
            top_p=0.95,
            stream=True,
        )
        return "".join([chunk.choices[0].text async for chunk in stream])

    together = await asyncio.gather(*(tell(number) for number in range(32)))
    alone = [await tell(number) for number in range(32)]
    assert together == alone


def test_a_stop_string_is_cut_and_reported(client: openai.OpenAI) -> None:
    def ask(stop: list[str]) -> tuple[str, object]:
        answer = client.chat.completions.create(
            model=MODEL, messages=QUESTION, temperature=0, stop=stop
        )
        choice = answer.choices[0]
        return choice.message.content or "", choice.model_extra and choice.model_extra[
            "stop_reason"
        ]

    whole, none = ask([])
    assert none is None
    cut, reason = ask(["never", "of Fra"])
    assert (cut, reason) == (whole[: whole.index("of Fra")], "of Fra")


def test_errors_are_the_clients_own_exceptions(client: openai.OpenAI) -> None:
    with pytest.raises(openai.NotFoundError) as unknown:
        client.chat.completions.create(model="gpt-5", messages=QUESTION)
    assert unknown.value.code == "model_not_found"
    with pytest.raises(openai.BadRequestError) as too_long:
        client.completions.create(model=MODEL, prompt=[100] * 9000)
    assert too_long.value.code == "context_length_exceeded"
    assert "8192" in str(too_long.value)
    assert "9000" in str(too_long.value)


def test_a_raw_response_carries_the_clients_request_id(client: openai.OpenAI) -> None:
    raw = client.models.with_raw_response.list(extra_headers={"x-request-id": "mine"})
    assert raw.headers["x-request-id"] == "mine"
    assert [model.id for model in raw.parse()] == [MODEL]


async def test_after_300_requests_half_of_them_abandoned_nothing_is_left(
    unhurried: openai.AsyncOpenAI, client: openai.OpenAI
) -> None:
    async def one(number: int) -> None:
        stream = await unhurried.with_options(max_retries=8).completions.create(
            model=MODEL, prompt=f"{number} is", max_tokens=1 + number % 8, stream=True
        )
        if number % 2:
            await asyncio.sleep(number % 7 / 20)
            await stream.close()
        else:
            assert [chunk async for chunk in stream][-1].choices[0].finish_reason

    turns = asyncio.Semaphore(60)

    async def in_turn(number: int) -> None:
        async with turns:
            await one(number)

    await asyncio.gather(*(in_turn(number) for number in range(300)))
    await asyncio.sleep(1)
    for gauge in ("requests_running", "requests_waiting", "kv_blocks_used"):
        assert metric(client, f"stepserve_{gauge}") == 0
    assert client.completions.create(model=MODEL, prompt="Still", max_tokens=1).choices
