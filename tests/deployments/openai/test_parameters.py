from __future__ import annotations

from typing import Any

import pytest
from starlette.applications import Starlette

from models.events import Finished, FinishReason, Reasoning, Started, Text, Usage
from models.mock import MockEngine
from models.request import TokenPrompt
from tests.deployments.schemas import check
from tests.deployments.serving import CHAT, HELLO, Reciting, chat, complete, events, make_app, post

GOING_ON = {"continue_final_message": True, "add_generation_prompt": False}


@pytest.fixture
def app() -> Starlette:
    return make_app()


async def refused(app: Starlette, param: str, **body: Any) -> dict[str, Any]:
    answer = await chat(app, **body)
    assert answer.status_code == 400, answer.text
    assert answer.headers["x-should-retry"] == "false"
    check("ErrorResponse", answer.json())
    error: dict[str, Any] = answer.json()["error"]
    assert error["type"] == "invalid_request_error"
    assert error["param"] == param
    return error


@pytest.mark.parametrize(
    "extra",
    [
        {"user": "ann", "metadata": {"a": "b"}, "store": True, "service_tier": "auto"},
        {"safety_identifier": "x", "prompt_cache_key": "k", "prompt_cache_retention": "24h"},
        {"prompt_cache_options": {"mode": "implicit"}, "verbosity": "medium"},
        {"rid": "x", "cache_prompt": True, "separate_reasoning": True, "stream_reasoning": True},
    ],
)
async def test_the_harmless_is_accepted(app: Starlette, extra: dict[str, Any]) -> None:
    assert (await chat(app, **extra)).status_code == 200


async def test_the_cache_key_reaches_the_engine() -> None:
    engine = MockEngine("mock")
    app = make_app(engine)
    await chat(app, prompt_cache_key="ann")
    await complete(app, prompt_cache_key="ben")
    await chat(app, prompt_cache_key=None)
    assert [request.cache_key for request in engine.requests] == ["ann", "ben", None]
    await refused(app, "prompt_cache_key", prompt_cache_key=1)


@pytest.mark.parametrize(
    ("role", "options", "shown"),
    [
        ("assistant", {"echo": True, **GOING_ON}, "So: fox"),
        ("assistant", {"echo": False, **GOING_ON}, "fox"),
        ("user", {"echo": True}, "fox"),
    ],
)
async def test_what_a_chat_goes_on_with_is_shown_before_it_on_request(
    role: str, options: dict[str, Any], shown: str
) -> None:
    app = make_app(MockEngine("mock", pieces=["fox"]))
    messages = [*HELLO, {"role": role, "content": [{"type": "text", "text": "So: "}]}]
    body = {"messages": messages, "max_tokens": 1, **options}
    whole = (await chat(app, **body)).json()
    check("CreateChatCompletionResponse", whole)
    assert whole["choices"][0]["message"]["content"] == shown
    *chunks, _ = events((await chat(app, **body, stream=True)).text)
    deltas = [chunk["choices"][0]["delta"].get("content", "") for chunk in chunks]
    assert "".join(deltas) == shown


async def test_reasoning_is_left_out_on_request() -> None:
    thought, said = Reasoning("Hm. ", token_ids=(7, 8)), Text("Yes", token_ids=(9,))
    end = Finished(FinishReason.STOP, Usage(1, 4, reasoning_tokens=2))
    app = make_app(Reciting("mock", Started(1, 0), thought, said, end))
    body = {"include_reasoning": False, "return_token_ids": True}
    whole = (await chat(app, **body)).json()
    check("CreateChatCompletionResponse", whole)
    (choice,) = whole["choices"]
    assert choice["message"] == {"role": "assistant", "content": "Yes", "refusal": None}
    assert choice["token_ids"] == [9]
    assert whole["usage"]["completion_tokens_details"] == {"reasoning_tokens": 2}
    *chunks, _ = events((await chat(app, **body, stream=True)).text)
    assert not [one for one in chunks if "reasoning" in one["choices"][0]["delta"]]
    told = (await chat(app, include_reasoning=True)).json()["choices"][0]["message"]
    assert told["reasoning"] == "Hm. "


async def test_what_is_to_be_done_with_the_prompt_reaches_the_engine() -> None:
    engine = MockEngine("mock")
    app = make_app(engine)
    for ask in (chat, complete):
        await ask(app, cache_salt="s", add_special_tokens=True, truncation_side="right")
        await ask(app, add_special_tokens=False, truncation_side="left")
        await ask(app, cache_salt=None, add_special_tokens=None, truncation_side=None)
    requests = engine.requests
    assert [request.cache_salt for request in requests] == ["s", "", ""] * 2
    assert [request.truncates_end for request in requests] == [True, False, False] * 2
    prompts = [request.prompt for request in requests]
    special = [one.special_tokens for one in prompts if not isinstance(one, TokenPrompt)]
    assert special == [True, False, False, True, False, True]
    await refused(app, "cache_salt", cache_salt="")
    await refused(app, "truncation_side", truncation_side="middle")


@pytest.mark.parametrize(
    "extra",
    [
        {"logprobs": False, "top_logprobs": 0},
        {"tools": [], "functions": [], "tool_choice": "auto", "function_call": "none"},
        {"tool_choice": "none"},
        {"response_format": {"type": "text"}, "modalities": ["text"]},
        {"audio": None, "prediction": None, "web_search_options": None, "moderation": None},
        {"reasoning_effort": None},
        {"mirostat": 0, "typical_p": 1.0, "dynatemp_range": 0.0, "n_probs": 0, "tfs_z": 1},
        {"include_reasoning": True, "timings_per_token": False},
        {"parallel_tool_calls": False},
        {"n": 1, "stop": [], "logit_bias": {}},
        {"guided_json": None, "structured_outputs": None, "use_beam_search": False},
        {"length_penalty": 1.0, "skip_special_tokens": True, "chat_template_kwargs": {}},
        {"top_k": 0, "min_p": 0, "repetition_penalty": 1, "min_tokens": 0},
        {"allowed_token_ids": [], "bad_words": [], "prompt_logprobs": None, "priority": 0},
        {"thinking_token_budget": 0},
    ],
)
async def test_neutral_values_pass(app: Starlette, extra: dict[str, Any]) -> None:
    assert (await chat(app, **extra)).status_code == 200


@pytest.mark.parametrize(
    ("param", "value"),
    [
        ("functions", [{"name": "f"}]),
        ("function_call", {"name": "f"}),
        ("audio", {"voice": "alloy"}),
        ("modalities", ["text", "audio"]),
        ("prediction", {"type": "content", "content": "x"}),
        ("web_search_options", {}),
        ("moderation", {"model": "m"}),
        ("use_beam_search", True),
        ("length_penalty", True),
        ("typical_p", 0.9),
        ("mirostat", 2),
    ],
)
async def test_what_would_change_the_answer_is_refused(
    app: Starlette, param: str, value: Any
) -> None:
    error = await refused(app, param, **{param: value})
    assert error["code"] == "unsupported_parameter"


@pytest.mark.parametrize(
    ("param", "value"),
    [
        ("response_format", {"type": "json_object"}),
        ("response_format", {"type": "json_schema", "json_schema": {}}),
        ("guided_json", {}),
        ("regex", "a+"),
    ],
)
async def test_a_grammar_that_the_engine_does_not_follow_is_refused(
    app: Starlette, param: str, value: Any
) -> None:
    error = await refused(app, param, **{param: value})
    assert "follows no grammars" in error["message"]
    for stream in (True, False):
        answer = await complete(app, **{param: value}, stream=stream)
        assert answer.status_code == 400


async def test_the_unknown_is_refused(app: Starlette) -> None:
    error = await refused(app, "temprature", temprature=1)
    assert error["message"] == "Unrecognized request argument supplied: temprature"
    await refused(app, "prompt", prompt="x")
    assert (await chat(app, temprature=None)).status_code == 200
    assert (await complete(app, messages=[])).json()["error"]["param"] == "messages"
    assert (await complete(app, max_completion_tokens=1)).status_code == 400


@pytest.mark.parametrize(
    ("param", "value"),
    [
        ("temperature", "1"),
        ("temperature", True),
        ("temperature", -0.1),
        ("temperature", 2.1),
        ("top_p", -0.1),
        ("top_p", 1.5),
        ("top_k", -2),
        ("top_k", 1.0),
        ("min_p", 2),
        ("n", 0),
        ("n", 129),
        ("n", True),
        ("n", 10**400),
        ("seed", 1.5),
        ("seed", 2**64),
        ("seed", 10**400),
        ("max_tokens", 0),
        ("max_tokens", -1),
        ("max_tokens", 16.0),
        ("max_tokens", 10**400),
        ("max_completion_tokens", 0),
        ("presence_penalty", 3),
        ("frequency_penalty", -3),
        ("repetition_penalty", 0),
        ("repetition_penalty", 10**400),
        ("logit_bias", []),
        ("logit_bias", {"x": 1}),
        ("logit_bias", {"-1": 1}),
        ("logit_bias", {"9" * 5000: 1}),
        ("logit_bias", {"1": 101}),
        ("stop", 5),
        ("stop", {"a": 1}),
        ("stop", ["x"] * 65),
        ("stop_token_ids", [-1]),
        ("stop_token_ids", "1"),
        ("ignore_eos", 1),
        ("logprobs", 1),
        ("top_logprobs", 2),
        ("prompt_logprobs", 21),
        ("prompt_logprobs", -1),
        ("thinking_token_budget", -1),
        ("allowed_token_ids", [-1]),
        ("allowed_token_ids", "1"),
        ("bad_words", [""]),
        ("bad_words", "x"),
        ("bad_words", ["x"] * 257),
        ("return_token_ids", 1),
        ("include_stop_str_in_output", "no"),
        ("skip_special_tokens", 0),
        ("truncate_prompt_tokens", 0),
        ("truncate_prompt_tokens", -1),
        ("timeout", 0),
        ("timeout", -1),
        ("timeout", "1"),
        ("priority", 1001),
        ("priority", 1.5),
        ("stream", "true"),
        ("stream_options", []),
        ("model", None),
        ("model", 5),
        ("messages", None),
        ("messages", "Hi"),
        ("messages", []),
    ],
)
async def test_wrong_types_and_ranges_are_refused_by_name(
    app: Starlette, param: str, value: Any
) -> None:
    await refused(app, param, **{param: value})


async def test_places_inside_are_named(app: Starlette) -> None:
    await refused(app, "stop[1]", stop=["a", 1])
    await refused(app, "logit_bias.5", logit_bias={"5": "x"})
    await refused(app, "stop_token_ids[0]", stop_token_ids=["x"])
    await refused(app, "min_tokens", min_tokens=5, max_tokens=4)


async def test_what_does_not_go_together_is_refused(app: Starlette) -> None:
    await refused(app, "top_logprobs", logprobs=False, top_logprobs=1)
    await refused(app, "top_logprobs", logprobs=True, top_logprobs=21)
    await refused(app, "prompt_logprobs", prompt_logprobs=1, stream=True)


async def test_wrong_types_are_told_in_words(app: Starlette) -> None:
    error = await refused(app, "temperature", temperature="1")
    assert error["code"] == "invalid_type"
    assert error["message"] == (
        "Invalid type for 'temperature': expected a number, but got a string instead."
    )


async def test_stream_options(app: Starlette) -> None:
    for options in ({}, {"include_obfuscation": True}, {"include_usage": None}):
        assert (await chat(app, stream=True, stream_options=options)).status_code == 200
    await refused(app, "stream_options", stream_options={"include_usage": True})
    for name, value in {"x": 1, "continuous_usage_stats": 1, "include_usage": 1}.items():
        await refused(app, f"stream_options.{name}", stream=True, stream_options={name: value})


@pytest.mark.parametrize("missing", ["model", "messages"])
async def test_what_must_be_given(app: Starlette, missing: str) -> None:
    body = {"model": "mock", "messages": HELLO}
    del body[missing]
    error = (await post(app, CHAT, body)).json()["error"]
    assert (error["param"], error["code"]) == (missing, "missing_required_parameter")


async def test_names_of_other_servers() -> None:
    engine = MockEngine("mock")
    app = make_app(engine)
    for body in ({"repeat_penalty": 1.5, "no_stop_trim": True}, {"repetition_penalty": 1.5}):
        assert (await chat(app, **body)).status_code == 200
    one, two = engine.requests
    assert (one.sampling.repetition_penalty, one.include_stop) == (1.5, True)
    assert (two.sampling.repetition_penalty, two.include_stop) == (1.5, False)
    wrong = (await chat(app, repeat_penalty="x")).json()["error"]
    assert wrong["param"] in ("repeat_penalty", "repetition_penalty")
    both = await chat(app, repeat_penalty=1.5, repetition_penalty=1.1)
    assert both.json()["error"]["param"] == "repeat_penalty"
