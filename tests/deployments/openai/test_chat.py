from __future__ import annotations

from typing import Any

import pytest

from models.mock import MockEngine
from models.request import ChatPrompt
from tests.deployments.schemas import check
from tests.deployments.serving import chat, events, make_app

PIECES = ["Hel", "lo", " wor", "ld"]


async def test_an_answer_is_whole() -> None:
    answer = await chat(make_app(MockEngine("mock", pieces=PIECES, cached_tokens=1)))
    assert answer.status_code == 200
    body = answer.json()
    check("CreateChatCompletionResponse", body)
    assert body["id"].startswith("chatcmpl-")
    assert body["choices"] == [
        {
            "index": 0,
            "message": {"role": "assistant", "content": "Hello world", "refusal": None},
            "logprobs": None,
            "finish_reason": "stop",
            "stop_reason": None,
        }
    ]
    assert body["usage"] == {
        "prompt_tokens": 2,
        "completion_tokens": 4,
        "total_tokens": 6,
        "prompt_tokens_details": {"cached_tokens": 1},
        "completion_tokens_details": {"reasoning_tokens": 0},
    }


async def test_a_stream_is_exactly_openais() -> None:
    answer = await chat(make_app(MockEngine("mock", pieces=PIECES)), stream=True)
    assert answer.headers["content-type"] == "text/event-stream; charset=utf-8"
    *chunks, done = events(answer.text)
    assert done == "[DONE]"
    for chunk in chunks:
        check("CreateChatCompletionStreamResponse", chunk)
        assert "usage" not in chunk
    choices = [chunk["choices"][0] for chunk in chunks]
    opening = {"role": "assistant", "content": "", "refusal": None}
    texts = [{"content": piece} for piece in PIECES]
    assert [choice["delta"] for choice in choices] == [opening, *texts, {}]
    assert [choice["finish_reason"] for choice in choices] == [None] * 5 + ["stop"]
    assert choices[-1]["stop_reason"] is None


async def test_every_chunk_has_the_same_heading() -> None:
    answer = await chat(make_app(), stream=True, stream_options={"include_usage": True})
    *chunks, _ = events(answer.text)
    heading = ("id", "object", "created", "model", "system_fingerprint")
    assert len({tuple(chunk[key] for key in heading) for chunk in chunks}) == 1


async def test_usage_comes_last_and_only_when_asked_for() -> None:
    app = make_app(MockEngine("mock", pieces=PIECES, cached_tokens=2))
    whole = (await chat(app, n=2)).json()
    answer = await chat(app, n=2, stream=True, stream_options={"include_usage": True})
    *chunks, last, done = events(answer.text)
    assert done == "[DONE]"
    assert all(chunk["usage"] is None for chunk in chunks)
    assert last["choices"] == []
    assert last["usage"] == whole["usage"]
    for chunk in [*chunks, last]:
        check("CreateChatCompletionStreamResponse", chunk)


async def test_choices_are_apart_and_end_once_each() -> None:
    app = make_app(MockEngine("mock", pieces=PIECES))
    *chunks, _ = events((await chat(app, n=3, stream=True)).text)
    choices = [chunk["choices"][0] for chunk in chunks]
    for index in range(3):
        own = [choice for choice in choices if choice["index"] == index]
        assert own[0]["delta"]["role"] == "assistant"
        assert "".join(choice["delta"].get("content", "") for choice in own) == "Hello world"
        assert [bool(choice["finish_reason"]) for choice in own] == [False] * 5 + [True]
    assert [one["index"] for one in (await chat(app, n=3)).json()["choices"]] == [0, 1, 2]


@pytest.mark.parametrize("name", ["max_tokens", "max_completion_tokens"])
async def test_a_limit_ends_by_length(name: str) -> None:
    answer = await chat(make_app(MockEngine("mock", pieces=PIECES)), **{name: 2})
    choice = answer.json()["choices"][0]
    assert (choice["message"]["content"], choice["finish_reason"]) == ("Hello", "length")


@pytest.mark.parametrize("limits", [{}, {"max_tokens": None, "max_completion_tokens": None}])
async def test_without_a_limit_the_context_is_the_limit(limits: dict[str, Any]) -> None:
    app = make_app(MockEngine("mock", pieces=["a"], max_context=40))
    answer = await chat(app, ignore_eos=True, **limits)
    assert answer.json()["usage"]["total_tokens"] == 40


async def test_limits_may_be_equal_but_not_differ() -> None:
    assert (await chat(make_app(), max_tokens=3, max_completion_tokens=3)).status_code == 200
    answer = await chat(make_app(), max_tokens=3, max_completion_tokens=4)
    assert answer.status_code == 400
    assert answer.json()["error"]["code"] == "invalid_parameter_combination"


async def test_parameters_reach_the_engine() -> None:
    engine = MockEngine("mock")
    answer = await chat(
        make_app(engine),
        temperature=0,
        top_p=0.5,
        top_k=-1,
        min_p=0.1,
        seed=-7,
        n=2,
        stop=["x", ""],
        logit_bias={"5": -100, "6": 1.5},
        presence_penalty=1,
        frequency_penalty=-1,
        repetition_penalty=1.1,
        min_tokens=2,
        stop_token_ids=[900],
        ignore_eos=False,
        max_completion_tokens=9,
    )
    assert answer.status_code == 200
    (request,) = engine.requests
    sampling = request.sampling
    assert (sampling.temperature, sampling.top_p, sampling.top_k) == (0, 0.5, 0)
    assert (sampling.min_p, sampling.seed, sampling.max_tokens) == (0.1, -7, 9)
    assert (sampling.presence_penalty, sampling.frequency_penalty) == (1, -1)
    assert (sampling.repetition_penalty, sampling.min_tokens) == (1.1, 2)
    assert sampling.logit_bias == {5: -100, 6: 1.5}
    assert (sampling.stop_token_ids, sampling.ignore_eos) == ((900,), False)
    assert (request.n, request.stop) == (2, ("x", ""))


async def test_null_is_the_default_everywhere() -> None:
    engine = MockEngine("mock")
    names = ["temperature", "top_p", "n", "stop", "seed", "logit_bias", "stream_options", "tools"]
    names += ["logprobs", "top_logprobs", "response_format", "stream", "user", "reasoning_effort"]
    answer = await chat(make_app(engine), **dict.fromkeys(names))
    assert answer.status_code == 200
    assert engine.requests[0].sampling.temperature == 1


async def test_messages_reach_the_template() -> None:
    engine = MockEngine("mock")
    call = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    messages = [
        {"role": "developer", "content": "Be brief."},
        {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]},
        {"role": "assistant", "content": None, "tool_calls": [call], "refusal": None},
        {"role": "tool", "tool_call_id": "c1", "content": "42"},
        {"role": "user", "name": "Ann", "content": ""},
    ]
    assert (await chat(make_app(engine), messages=messages)).status_code == 200
    assert engine.requests[0].prompt == ChatPrompt(
        (
            {"role": "developer", "content": "Be brief."},
            {"role": "user", "content": "a\nb"},
            {"role": "assistant", "content": "", "tool_calls": [call]},
            {"role": "tool", "content": "42", "tool_call_id": "c1"},
            {"role": "user", "content": "", "name": "Ann"},
        )
    )


async def test_text_survives_every_client() -> None:
    text = 'é ありがとう 👩‍👩‍👧 \u2028 \x85 \n " \\ \x00'
    app = make_app(MockEngine("mock", pieces=list(text)))
    answer = await chat(app, stream=True)
    *chunks, _ = events(answer.text)
    assert "".join(chunk["choices"][0]["delta"].get("content", "") for chunk in chunks) == text
    assert "ありがとう"[0] in answer.text
    assert answer.text.splitlines() == answer.text.split("\n")[:-1]
    whole = await chat(app)
    assert whole.json()["choices"][0]["message"]["content"] == text
