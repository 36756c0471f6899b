from __future__ import annotations

from typing import Any

import httpx
import pytest

from models.mock import MockEngine
from models.request import ChatPrompt
from tests.deployments.anthropic.asking import HELLO, MESSAGES, ask, body, told
from tests.deployments.serving import Exchange, client, eventually, make_app, post

COUNT = "/v1/messages/count_tokens"
PIECES = ["Hel", "lo", " wor", "ld"]


def refusal(answer: httpx.Response, status: int, type: str) -> str:
    assert answer.status_code == status, answer.text
    told = answer.json()
    assert told.keys() == {"type", "error", "request_id"}
    assert told["type"] == "error"
    assert told["error"]["type"] == type
    assert told["request_id"] == answer.headers["request-id"]
    message: str = told["error"]["message"]
    return message


async def test_a_message() -> None:
    answer = await ask(make_app(MockEngine("mock", pieces=PIECES, cached_tokens=1)))
    message = answer.json()
    assert message.pop("id").startswith("msg_")
    assert message == {
        "type": "message",
        "role": "assistant",
        "model": "mock",
        "content": [{"type": "text", "text": "Hello world"}],
        "stop_reason": "end_turn",
        "stop_sequence": None,
        "usage": {
            "input_tokens": 1,
            "cache_creation_input_tokens": 0,
            "cache_read_input_tokens": 1,
            "output_tokens": 4,
            "output_tokens_details": {"thinking_tokens": 0},
        },
    }
    assert answer.headers["request-id"] == answer.headers["x-request-id"]


async def test_a_stream_says_what_the_whole_answer_says() -> None:
    app = make_app(MockEngine("mock", pieces=PIECES))
    events = told((await ask(app, stream=True)).text)
    assert [name for name, _ in events] == [
        "message_start",
        "ping",
        "content_block_start",
        *["content_block_delta"] * 4,
        "content_block_stop",
        "message_delta",
        "message_stop",
    ]
    start = events[0][1]["message"]
    assert (start["content"], start["stop_reason"], start["usage"]["input_tokens"]) == ([], None, 2)
    assert events[2][1]["content_block"] == {"type": "text", "text": ""}
    assert [event["delta"]["text"] for _, event in events[3:7]] == PIECES
    whole = (await ask(app)).json()
    delta = events[-2][1]
    assert delta["delta"] == {"stop_reason": "end_turn", "stop_sequence": None}
    assert delta["usage"] == whole["usage"]


@pytest.mark.parametrize(
    ("changes", "reason", "stop", "texts"),
    [
        ({"stop_sequences": ["zz", "wor"]}, "stop_sequence", "wor", ["Hello "]),
        ({"stop_sequences": ["Hel"]}, "stop_sequence", "Hel", []),
        ({"max_tokens": 2}, "max_tokens", None, ["Hello"]),
        ({}, "end_turn", None, ["Hello world"]),
    ],
)
async def test_why_it_stopped(
    changes: dict[str, Any], reason: str, stop: str | None, texts: list[str]
) -> None:
    app = make_app(MockEngine("mock", pieces=PIECES))
    message = (await ask(app, **changes)).json()
    assert (message["stop_reason"], message["stop_sequence"]) == (reason, stop)
    assert [block["text"] for block in message["content"]] == texts
    events = told((await ask(app, stream=True, **changes)).text)
    assert events[-2][1]["delta"] == {"stop_reason": reason, "stop_sequence": stop}


async def test_the_end_of_the_context_is_not_the_callers_limit() -> None:
    message = (await ask(make_app(MockEngine("mock", pieces=PIECES, max_context=4)))).json()
    assert message["stop_reason"] == "model_context_window_exceeded"


async def test_what_reaches_the_engine() -> None:
    engine = MockEngine("mock")
    changes: dict[str, Any] = {
        "temperature": 0.5,
        "top_p": 0.9,
        "top_k": 7,
        "metadata": {"user_id": "u"},
    }
    answer = await ask(make_app(engine), system="Be brief.", stop_sequences=["a"], **changes)
    assert answer.status_code == 200
    [request] = engine.requests
    assert request.prompt == ChatPrompt(({"role": "system", "content": "Be brief."}, *HELLO))
    sampling = request.sampling
    assert (sampling.temperature, sampling.top_p, sampling.top_k) == (0.5, 0.9, 7)
    assert (sampling.max_tokens, request.stop) == (100, ("a",))


@pytest.mark.parametrize(
    ("changes", "name"),
    [
        ({"max_tokens": None}, "max_tokens"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"messages": None}, "messages"),
        ({"messages": []}, "messages"),
        ({"messages": [{"role": "user", "content": [{"type": "image"}]}]}, "content[0].type"),
        ({"model": None}, "model"),
        ({"temperature": 3}, "temperature"),
        ({"temperature": "x"}, "temperature"),
        ({"stop_sequences": "x"}, "stop_sequences"),
        ({"stream": 1}, "stream"),
        ({"system": 1}, "system"),
        ({"tools": {}}, "tools"),
        ({"tool_choice": {"type": "any"}}, "tool_choice"),
        ({"thinking": {"type": "enabled"}}, "thinking.budget_tokens"),
        ({"output_config": {"effort": "none"}}, "output_config.effort"),
        ({"mcp_servers": [{"name": "x"}]}, "mcp_servers"),
        ({"n": 2}, "n"),
    ],
)
async def test_what_is_wrong_is_named(changes: dict[str, Any], name: str) -> None:
    for stream in (False, True):
        answer = await ask(make_app(), **{"stream": stream, **changes})
        assert name in refusal(answer, 400, "invalid_request_error")


async def test_clients_are_told_to_go_on_without_a_thread() -> None:
    answer = await ask(make_app(), thread={"type": "create"})
    refusal(answer, 400, "invalid_request_error")
    assert answer.json()["error"]["details"] == {"error_code": "thread_unsupported_request"}
    assert (await ask(make_app(), thread=None)).status_code == 200


async def test_an_unknown_model() -> None:
    assert "other" in refusal(await ask(make_app(), model="other"), 404, "not_found_error")
    counted = await post(make_app(), COUNT, {"model": "other", "messages": HELLO})
    refusal(counted, 404, "not_found_error")


async def test_a_prompt_that_is_too_long() -> None:
    answer = await ask(make_app(MockEngine("mock", max_context=2)))
    message = refusal(answer, 400, "invalid_request_error")
    assert message == "prompt is too long: 2 tokens > 2 maximum"


async def test_other_refusals_have_the_same_form() -> None:
    app = make_app(max_body_bytes=200, api_keys=["one"])
    refusal(await ask(app), 401, "authentication_error")
    large = await post(app, MESSAGES, body(system="x" * 200), **{"x-api-key": "one"})
    refusal(large, 413, "request_too_large")
    async with client(app) as http:
        refusal(await http.get(MESSAGES), 405, "invalid_request_error")
        refusal(await http.post("/v1/messages/batches"), 404, "not_found_error")
        broken = await http.post(MESSAGES, content="{", headers={"x-api-key": "one"})
        refusal(broken, 400, "invalid_request_error")


@pytest.mark.parametrize(
    "headers",
    [
        {"x-api-key": "one"},
        {"authorization": "Bearer one"},
        {"x-api-key": "wrong", "authorization": "Bearer one"},
        {"x-api-key": "one", "authorization": "Bearer wrong"},
    ],
)
async def test_either_header_may_hold_the_key(headers: dict[str, str]) -> None:
    app = make_app(api_keys=["one"])
    tolerated = {"anthropic-version": "2023-06-01", "anthropic-beta": "x-2026-01-01"}
    assert (await post(app, MESSAGES, body(), **headers, **tolerated)).status_code == 200


@pytest.mark.parametrize("headers", [{"x-api-key": "two"}, {"x-api-key": " "}, {"x-api-key": "é"}])
async def test_a_wrong_key(headers: dict[str, str]) -> None:
    async with client(make_app(api_keys=["one"])) as http:
        encoded = httpx.Headers(headers, encoding="latin-1")
        refusal(await http.post(MESSAGES, headers=encoded), 401, "authentication_error")


async def test_busy_is_overloaded() -> None:
    answer = await ask(make_app(MockEngine("mock", failure="busy", retry_after=7)))
    refusal(answer, 529, "overloaded_error")
    assert answer.headers["retry-after"] == "7"


@pytest.mark.parametrize("failure", ["failed", "crash"])
async def test_a_failure(failure: Any) -> None:
    refusal(await ask(make_app(MockEngine("mock", failure=failure))), 500, "api_error")


@pytest.mark.parametrize(
    ("failure", "type"),
    [("failed", "api_error"), ("crash", "api_error"), ("busy", "overloaded_error")],
)
async def test_a_failure_in_the_stream_is_its_last_event(failure: Any, type: str) -> None:
    app = make_app(MockEngine("mock", failure=failure, fail_after=2))
    answer = await ask(app, stream=True)
    *_, (name, event) = told(answer.text)
    assert name == "error"
    assert event["error"]["type"] == type
    assert event["request_id"] == answer.headers["request-id"]


async def test_a_client_that_leaves_frees_the_engine() -> None:
    engine = MockEngine("mock", inter_token_s=0.002, pieces=["a"] * 10_000)
    exchange = Exchange(make_app(engine), MESSAGES, body(stream=True, max_tokens=10_000))
    for _ in range(4):
        await exchange.next()
    await exchange.leave()
    await eventually(lambda: engine.live == 0)


async def test_an_engine_without_a_tokenizer_cannot_count() -> None:
    answer = await post(make_app(), COUNT, {"model": "mock", "messages": HELLO})
    assert "'mock'" in refusal(answer, 400, "invalid_request_error")


async def test_only_a_prompt_is_counted() -> None:
    assert "max_tokens" in refusal(await ask(make_app(), COUNT), 400, "invalid_request_error")
