from __future__ import annotations

from typing import Any

import pytest

from models.mock import MockEngine
from models.request import ChatPrompt
from tests.deployments.serving import chat, make_app


@pytest.mark.parametrize("name", ["max_tokens", "max_completion_tokens"])
async def test_a_limit_ends_by_length(name: str) -> None:
    answer = await chat(make_app(MockEngine("mock", pieces=["Hel", "lo", " world"])), **{name: 2})
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
