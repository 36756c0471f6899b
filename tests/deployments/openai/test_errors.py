from __future__ import annotations

from typing import Any

import pytest

from deployments.openai.errors import engine_error, not_one_of, spell
from models.errors import Busy, EngineError, Failed, Invalid, TooLong
from models.mock import MockEngine
from tests.deployments.schemas import check
from tests.deployments.serving import chat, complete, events, make_app


@pytest.mark.parametrize(
    ("error", "status", "kind", "param", "code"),
    [
        (TooLong(9, 8), 400, "invalid_request_error", "messages", "context_length_exceeded"),
        (Invalid("no", "stop"), 400, "invalid_request_error", "stop", None),
        (Busy("full", 2), 503, "server_error", None, "server_is_overloaded"),
        (Failed("cuda"), 500, "server_error", None, None),
    ],
)
def test_engine_errors_have_a_form(
    error: EngineError, status: int, kind: str, param: str | None, code: str | None
) -> None:
    described = engine_error(error, "messages")
    assert described.status == status
    body = {"message": error.message, "type": kind, "param": param, "code": code}
    assert described.body == {"error": body}
    check("ErrorResponse", described.body)


@pytest.mark.parametrize(
    ("wait", "seconds", "milliseconds"), [(0, 1, 1), (0.2, 1, 200), (2.01, 3, 2010)]
)
def test_busy_tells_when_to_come_back(wait: float, seconds: int, milliseconds: int) -> None:
    headers = engine_error(Busy("full", wait), "messages").headers
    assert headers == {"retry-after": str(seconds), "retry-after-ms": str(milliseconds)}


def test_permanent_errors_are_not_to_be_retried() -> None:
    assert engine_error(Invalid("no"), "").headers == {"x-should-retry": "false"}


def test_paths_are_spelled_as_callers_do() -> None:
    assert spell(("messages", 1, "content", 0, "type")) == "messages[1].content[0].type"


def test_what_is_known_is_listed() -> None:
    error = not_one_of("tool_choice", ("none", "auto"))
    message = "Invalid value for 'tool_choice'. Supported values are: 'none', 'auto'."
    assert error.body["error"] == {
        "message": message,
        "type": "invalid_request_error",
        "param": "tool_choice",
        "code": "invalid_value",
    }


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("failure", "status"),
    [("invalid", 400), ("too_long", 400), ("busy", 503), ("failed", 500), ("crash", 500)],
)
async def test_an_error_before_the_answer_has_its_own_status(
    failure: Any, status: int, stream: bool
) -> None:
    engine = MockEngine("mock", failure=failure)
    for answer in (
        await chat(make_app(engine), stream=stream),
        await complete(make_app(engine), stream=stream),
    ):
        assert answer.status_code == status
        assert answer.headers["content-type"] == "application/json"
        check("ErrorResponse", answer.json())
    assert engine.live == 0


@pytest.mark.parametrize("after", [0, 1, 2])
@pytest.mark.parametrize("failure", ["invalid", "busy", "failed", "crash"])
async def test_an_error_in_the_stream_ends_it(failure: Any, after: int) -> None:
    engine = MockEngine("mock", pieces=["a", "b", "c"], failure=failure, fail_after=after)
    answer = await chat(make_app(engine), stream=True)
    assert answer.status_code == 200
    *chunks, error = events(answer.text)
    check("ErrorResponse", error)
    assert len(chunks) == 1 + after
    assert all(chunk["choices"][0]["finish_reason"] is None for chunk in chunks)
    assert engine.live == 0


@pytest.mark.parametrize("failure", ["failed", "crash"])
async def test_an_error_in_a_whole_answer_has_its_status(failure: Any) -> None:
    engine = MockEngine("mock", pieces=["a", "b"], failure=failure, fail_after=1)
    assert (await chat(make_app(engine))).status_code == 500
    assert engine.live == 0


async def test_a_crash_is_not_told() -> None:
    for after in (None, 1):
        engine = MockEngine("mock", failure="crash", fail_after=after)
        answer = await chat(make_app(engine), stream=True)
        assert "told to" not in answer.text
        assert "Traceback" not in answer.text


async def test_both_numbers_of_a_prompt_too_long() -> None:
    answer = await chat(make_app(MockEngine("mock", max_context=1)))
    error = answer.json()["error"]
    assert error["code"] == "context_length_exceeded"
    assert "1 tokens" in error["message"]
    assert "2 tokens" in error["message"]


async def test_no_error_repeats_all_that_was_sent() -> None:
    long = "x" * 100_000
    for body in ({long: 1}, {"model": long}, {"messages": [{"role": long}]}, {"top_k": long}):
        answer = await chat(make_app(), **body)
        assert answer.status_code in (400, 404)
        assert len(answer.text) < 5000
