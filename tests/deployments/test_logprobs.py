"""Logprobs, echoes and scoring over HTTP: the official client, over a real engine of bytes."""

from __future__ import annotations

import itertools
import math
from collections.abc import AsyncGenerator, Iterator
from typing import Any

import httpx2
import openai
import pytest
from openai.types.chat import ChatCompletionMessageParam
from starlette.applications import Starlette

from tests.deployments.schemas import check, check_text_chunk
from tests.deployments.serving import chat, complete, events, make_app
from tests.models.tiny_engine import Tiny, tiny_engine

MESSAGES: list[ChatCompletionMessageParam] = [{"role": "user", "content": "Hello there"}]
CLOSE = 2e-4


@pytest.fixture(scope="module")
def tiny() -> Iterator[Tiny]:
    with tiny_engine("mock") as tiny:
        yield tiny


@pytest.fixture
def app(tiny: Tiny) -> Starlette:
    return make_app(tiny.engine)


@pytest.fixture
async def client(app: Starlette) -> AsyncGenerator[openai.AsyncOpenAI]:
    http = httpx2.AsyncClient(transport=httpx2.ASGITransport(app))
    async with openai.AsyncOpenAI(
        base_url="http://test/v1", api_key="x", http_client=http
    ) as client:
        yield client


async def completed(app: Starlette, **body: Any) -> dict[str, Any]:
    answer = await complete(app, **body)
    assert answer.status_code == 200, answer.text
    whole: dict[str, Any] = answer.json()
    check("CreateCompletionResponse", whole)
    return whole


async def test_a_chat(client: openai.AsyncOpenAI) -> None:
    answer = await client.chat.completions.create(
        model="mock", messages=MESSAGES, logprobs=True, top_logprobs=3, max_tokens=20, seed=3, n=2
    )
    check("CreateChatCompletionResponse", answer.model_dump(exclude_unset=True))
    for choice in answer.choices:
        assert choice.logprobs is not None
        assert choice.logprobs.content is not None
        spelled = b"".join(bytes(one.bytes or ()) for one in choice.logprobs.content)
        assert spelled.decode(errors="replace") == choice.message.content
        for one in choice.logprobs.content:
            assert [len(one.top_logprobs), one.logprob <= 0] == [3, True]
            values = [top.logprob for top in one.top_logprobs]
            assert values == sorted(values, reverse=True)
            assert one.token == bytes(one.bytes or ()).decode(errors="replace")
            assert one.logprob <= values[0]


async def test_a_chat_without_alternatives(client: openai.AsyncOpenAI) -> None:
    answer = await client.chat.completions.create(
        model="mock", messages=MESSAGES, logprobs=True, max_tokens=4, seed=3
    )
    assert answer.choices[0].logprobs is not None
    assert answer.choices[0].logprobs.content
    assert all(one.top_logprobs == [] for one in answer.choices[0].logprobs.content)
    plain = await client.chat.completions.create(model="mock", messages=MESSAGES, max_tokens=4)
    assert plain.choices[0].logprobs is None


@pytest.mark.parametrize("stop", [None, "e", ["th", "qu"]])
async def test_a_streamed_chat_tells_what_the_whole_one_does(app: Starlette, stop: Any) -> None:
    body = {"logprobs": True, "top_logprobs": 2, "max_tokens": 40, "seed": 1, "n": 2, "stop": stop}
    whole = (await chat(app, **body)).json()
    *chunks, done = events((await chat(app, stream=True, **body)).text)
    assert done == "[DONE]"
    contents: dict[int, list[Any]] = {0: [], 1: []}
    for chunk in chunks:
        check("CreateChatCompletionStreamResponse", chunk)
        (choice,) = chunk["choices"]
        if choice["logprobs"]:
            assert choice["delta"]["content"]
            contents[choice["index"]] += choice["logprobs"]["content"]
    for choice in whole["choices"]:
        same(contents[choice["index"]], choice["logprobs"]["content"])


def same(ours: list[Any], theirs: list[Any]) -> None:
    assert [one["bytes"] for one in ours] == [one["bytes"] for one in theirs]
    for one, other in zip(ours, theirs, strict=True):
        assert one["logprob"] == pytest.approx(other["logprob"], abs=CLOSE)


@pytest.mark.parametrize("stop", [None, "e", ["th", "qu"]])
async def test_a_streamed_completion_tells_what_the_whole_one_does(
    app: Starlette, stop: Any
) -> None:
    body = {"logprobs": 2, "max_tokens": 40, "seed": 2, "echo": True, "stop": stop}
    whole = (await completed(app, **body))["choices"][0]
    *chunks, _ = events((await complete(app, stream=True, **body)).text)
    joined: dict[str, list[Any]] = {key: [] for key in whole["logprobs"]}
    for chunk in chunks:
        check_text_chunk(chunk)
        for key, values in (chunk["choices"][0]["logprobs"] or {}).items():
            joined[key] += values
    assert "".join(chunk["choices"][0]["text"] for chunk in chunks) == whole["text"]
    assert joined["tokens"] == whole["logprobs"]["tokens"]
    assert joined["text_offset"] == whole["logprobs"]["text_offset"]
    assert joined["token_logprobs"][1:] == pytest.approx(
        whole["logprobs"]["token_logprobs"][1:], abs=CLOSE
    )


async def test_offsets_point_at_the_tokens(app: Starlette) -> None:
    whole = await completed(app, prompt="a€b", logprobs=0, echo=True, max_tokens=12, seed=2)
    choice = whole["choices"][0]
    logprobs = choice["logprobs"]
    assert choice["text"].startswith("a€b")
    assert logprobs["tokens"][:5] == ["a", r"bytes:\xe2", r"bytes:\x82", r"bytes:\xac", "b"]
    assert logprobs["text_offset"][:6] == [0, 1, 1, 1, 2, 3]
    for token, offset in zip(logprobs["tokens"], logprobs["text_offset"], strict=True):
        assert token.startswith("bytes:") or choice["text"][offset : offset + len(token)] == token


async def test_tokens_are_called_by_their_ids_on_request(app: Starlette) -> None:
    body = {
        "max_tokens": 9,
        "seed": 2,
        "return_tokens_as_token_ids": True,
        "return_token_ids": True,
    }
    choice = (await complete(app, logprobs=2, **body)).json()["choices"][0]
    names = [f"token_id:{token_id}" for token_id in choice["token_ids"]]
    assert choice["logprobs"]["tokens"] == names
    for name, top in zip(names, choice["logprobs"]["top_logprobs"], strict=True):
        assert name in top
        assert len(top) >= 2
        assert all(key.startswith("token_id:") for key in top)
    choice = (await chat(app, logprobs=True, top_logprobs=2, **body)).json()["choices"][0]
    entries = choice["logprobs"]["content"]
    assert [one["token"] for one in entries] == [f"token_id:{i}" for i in choice["token_ids"]]
    assert all(top["token"].startswith("token_id:") for top in entries[0]["top_logprobs"])
    *chunks, _ = events((await complete(app, logprobs=0, stream=True, **body)).text)
    told = [c["choices"][0]["logprobs"] for c in chunks if c["choices"][0]["logprobs"]]
    assert [name for one in told for name in one["tokens"]] == names


async def test_scores_as_evaluation_harnesses_compute_them(app: Starlette, tiny: Tiny) -> None:
    """Contexts with several continuations, as token ids; the answer's own token is dropped."""
    contexts, endings = [[*b"The sky is "], [*b"Two and two"]], [[*b"blue"], [*b"four."], [200]]
    pairs = [(c, e) for c, e in itertools.product(contexts, endings)]
    for max_tokens in (0, 1):
        whole = await completed(
            app,
            prompt=[context + ending for context, ending in pairs],
            max_tokens=max_tokens,
            logprobs=1,
            echo=True,
            temperature=0,
        )
        assert whole["usage"]["completion_tokens"] == max_tokens * len(pairs)
        for (context, ending), choice in zip(pairs, whole["choices"], strict=True):
            logprobs = choice["logprobs"]
            assert logprobs["token_logprobs"][0] is None
            assert logprobs["top_logprobs"][0] is None
            span = slice(len(context), len(context) + len(ending))
            assert len(logprobs["token_logprobs"]) == span.stop + max_tokens
            rows = tiny.logprobs(context + ending)[len(context) - 1 : -1]
            expected = sum(float(row[i]) for row, i in zip(rows, ending, strict=True))
            assert sum(logprobs["token_logprobs"][span]) == pytest.approx(expected, abs=1e-3)
            greedy = [int(row.argmax()) == i for row, i in zip(rows, ending, strict=True)]
            tops = zip(
                logprobs["token_logprobs"][span], logprobs["top_logprobs"][span], strict=True
            )
            assert [one == max(top.values()) for one, top in tops] == greedy


async def test_a_greedy_continuation_is_recognised(app: Starlette) -> None:
    prompt = [*b"abc"]
    answer = await completed(
        app, prompt=prompt, max_tokens=6, temperature=0, return_token_ids=True, ignore_eos=True
    )
    ids = answer["choices"][0]["token_ids"]
    whole = await completed(app, prompt=prompt + ids, max_tokens=1, logprobs=1, echo=True)
    logprobs = whole["choices"][0]["logprobs"]
    for i in range(3, 9):
        assert logprobs["token_logprobs"][i] == max(logprobs["top_logprobs"][i].values())


async def test_the_end_of_the_sequence_is_one_of_a_completions_tokens(app: Starlette) -> None:
    """So that dropping the last of an echo's tokens never drops one of the prompt's."""
    end = {"logit_bias": {"257": 100}, "logprobs": 1, "max_tokens": 1, "temperature": 0}
    choice = (await completed(app, prompt="ab", echo=True, **end))["choices"][0]
    assert choice["finish_reason"] == "stop"
    assert choice["logprobs"]["tokens"] == ["a", "b", "<|end|>"]
    *chunks, _ = events((await complete(app, prompt="ab", stream=True, **end)).text)
    assert chunks[-1]["choices"][0]["logprobs"]["tokens"] == ["<|end|>"]
    in_chat = {**end, "logprobs": True}
    assert (await chat(app, **in_chat)).json()["choices"][0]["logprobs"]["content"] == []
    with_ids = (await chat(app, **in_chat, return_token_ids=True)).json()["choices"][0]
    assert [one["token"] for one in with_ids["logprobs"]["content"]] == ["<|end|>"]
    assert with_ids["token_ids"] == [257]


async def test_logprobs_are_from_before_temperature_bias_and_penalties(app: Starlette) -> None:
    plain = {"logprobs": 3, "max_tokens": 1, "temperature": 0}
    first = (await completed(app, **plain))["choices"][0]["logprobs"]["top_logprobs"][0]
    changed = {"logit_bias": {"97": 100}, "temperature": 2.0, "presence_penalty": 2.0}
    second = (await completed(app, **plain | changed))["choices"][0]["logprobs"]
    assert second["tokens"] == ["a"]
    for token, logprob in first.items():
        assert second["top_logprobs"][0][token] == pytest.approx(logprob, abs=CLOSE)


async def test_an_echo_alone(client: openai.AsyncOpenAI) -> None:
    answer = await client.completions.create(
        model="mock", prompt=["Once ", "Twice "], echo=True, max_tokens=3, seed=1
    )
    assert [choice.text.split(" ")[0] for choice in answer.choices] == ["Once", "Twice"]
    assert answer.choices[0].logprobs is None
    stream = await client.completions.create(
        model="mock", prompt="Once ", echo=True, max_tokens=3, seed=1, stream=True
    )
    texts = [chunk.choices[0].text async for chunk in stream]
    assert texts[0] == "Once "
    assert "".join(texts) == answer.choices[0].text


async def test_prompt_logprobs(app: Starlette, tiny: Tiny) -> None:
    rows = tiny.logprobs([*b"abc"])
    for path, body in (("text", {"prompt": "abc"}), ("ids", {"prompt": [*b"abc"]})):
        whole = await completed(app, prompt_logprobs=2, max_tokens=0, **body)
        first, *rest = whole["choices"][0]["prompt_logprobs"]
        assert first is None, path
        for one, row, token in zip(rest, rows, b"bc", strict=False):
            best = row.topk(2).indices.tolist()
            assert list(map(int, one)) == [token, *(i for i in best if i != token)]
            assert one[str(token)]["rank"] == int((row > row[token]).sum()) + 1
            assert one[str(token)]["logprob"] == pytest.approx(float(row[token]), abs=CLOSE)
            assert one[str(token)]["decoded_token"] == chr(token)
    answer = (await chat(app, prompt_logprobs=0, max_tokens=1)).json()
    check("CreateChatCompletionResponse", answer)
    assert len(answer["prompt_logprobs"]) == answer["usage"]["prompt_tokens"]
    assert all(len(one) == 1 for one in answer["prompt_logprobs"][1:])


async def test_best_of(app: Starlette) -> None:
    body = {"max_tokens": 8, "seed": 1, "temperature": 1.5}
    every = (await completed(app, n=6, logprobs=0, **body))["choices"]

    def mean(choice: dict[str, Any]) -> float:
        values = choice["logprobs"]["token_logprobs"]
        return math.fsum(values) / len(values)

    ranked = sorted(every, key=mean, reverse=True)
    whole = await completed(app, best_of=6, n=2, **body)
    assert [one["text"] for one in whole["choices"]] == [one["text"] for one in ranked[:2]]
    assert [one["index"] for one in whole["choices"]] == [0, 1]
    assert [one["logprobs"] for one in whole["choices"]] == [None, None]
    assert whole["usage"]["completion_tokens"] == sum(
        len(one["logprobs"]["tokens"]) for one in every
    )
    several = await completed(app, prompt=["Once upon", "Two"], best_of=3, **body)
    assert len(several["choices"]) == 2


async def test_token_ids(app: Starlette) -> None:
    wish = {"return_token_ids": True, "max_tokens": 5, "seed": 4, "ignore_eos": True}
    choice = (await completed(app, prompt="ab", **wish))["choices"][0]
    assert choice["prompt_token_ids"] == [*b"ab"]
    assert (
        bytes(i for i in choice["token_ids"] if i < 256).decode(errors="replace")
        == (choice["text"])
    )
    *chunks, _ = events((await complete(app, prompt="ab", stream=True, **wish)).text)
    assert chunks[0]["choices"][0]["prompt_token_ids"] == [*b"ab"]
    streamed = [i for chunk in chunks for i in chunk["choices"][0]["token_ids"]]
    assert streamed == choice["token_ids"]
    answer = (await chat(app, **wish)).json()
    check("CreateChatCompletionResponse", answer)
    assert len(answer["choices"][0]["token_ids"]) == 5
    assert len(answer["prompt_token_ids"]) == answer["usage"]["prompt_tokens"]
    *chunks, _ = events((await chat(app, stream=True, **wish)).text)
    assert chunks[0]["prompt_token_ids"] == answer["prompt_token_ids"]
    streamed = [i for chunk in chunks for i in chunk["choices"][0].get("token_ids", ())]
    assert streamed == answer["choices"][0]["token_ids"]


async def test_allowed_tokens_and_bad_words(app: Starlette) -> None:
    body = {"max_tokens": 30, "temperature": 1.5, "seed": 1, "ignore_eos": True}
    text = (await completed(app, allowed_token_ids=[*b"ab"], **body))["choices"][0]["text"]
    assert set(text) == {"a", "b"}
    assert "bab" in text
    wish = {"allowed_token_ids": [*b"ab"], "bad_words": ["bab", "aaa"]}
    text = (await completed(app, **wish, **body))["choices"][0]["text"]
    assert set(text) == {"a", "b"}
    assert "bab" not in text
    assert "aaa" not in text


async def test_truncated_prompts(app: Starlette) -> None:
    wish = {"truncate_prompt_tokens": 3, "max_tokens": 0, "echo": True}
    whole = await completed(app, prompt="abcdef", **wish)
    assert whole["choices"][0]["text"] == "def"
    assert whole["usage"]["prompt_tokens"] == 3
    long = await completed(app, prompt="x" * 5000, **wish)
    assert long["usage"]["prompt_tokens"] == 3


async def test_stops_and_special_tokens_in_the_text(app: Starlette) -> None:
    ends = {"logit_bias": {"97": 100}, "temperature": 0, "max_tokens": 4}
    for stop, text in (("a", "a"), ("aa", "aa")):
        kept = (await completed(app, stop=stop, include_stop_str_in_output=True, **ends))["choices"]
        assert (kept[0]["text"], kept[0]["stop_reason"]) == (text, stop)
        cut = (await completed(app, stop=stop, **ends))["choices"]
        assert (cut[0]["text"], cut[0]["stop_reason"]) == ("", stop)
    special = {"logit_bias": {"259": 100}, "temperature": 0, "max_tokens": 2}
    shown = await completed(app, skip_special_tokens=False, **special)
    assert shown["choices"][0]["text"] == "<|user|><|user|>"
    assert (await completed(app, **special))["choices"][0]["text"] == ""


async def test_usage_in_every_chunk(client: openai.AsyncOpenAI) -> None:
    stream = await client.chat.completions.create(
        model="mock",
        messages=MESSAGES,
        stream=True,
        max_tokens=10,
        seed=1,
        n=2,
        extra_body={"stream_options": {"include_usage": True, "continuous_usage_stats": True}},
    )
    usages = [chunk.usage async for chunk in stream]
    assert all(usage is not None for usage in usages)
    counts = [usage.completion_tokens for usage in usages if usage]
    assert counts == sorted(counts)
    assert (counts[0], counts[-1], counts[-2]) == (0, 20, 20)
