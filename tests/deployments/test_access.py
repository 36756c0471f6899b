from __future__ import annotations

import asyncio
import json
import logging
import re

import pytest
from starlette.types import Message

from configs.settings import AppSettings, ModelSettings
from deployments.access import request_id
from deployments.ingress import create_app
from models.mock import MockEngine
from tests.deployments.serving import (
    CHAT,
    HELLO,
    Probes,
    chat,
    client,
    complete,
    make_app,
    post,
    scope_of,
)

BODY = {"model": "mock", "messages": HELLO}
SECRET = [{"role": "user", "content": "a secret"}]


@pytest.fixture(autouse=True)
def at_info(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "stepserve")


def fields(caplog: pytest.LogCaptureFixture) -> dict[str, str]:
    (record,) = [one for one in caplog.records if "route=" in one.getMessage()]
    assert record.name == "stepserve"
    return dict(re.findall(r"(\w+)=(\"[^\"]*\"|\S+)", record.getMessage()))


async def test_the_clients_id_is_kept() -> None:
    engine = MockEngine("mock")
    app = make_app(engine)
    for stream in (False, True):
        answer = await post(app, CHAT, {**BODY, "stream": stream}, **{"x-request-id": "mine"})
        assert answer.headers["x-request-id"] == "mine"
    ids = [request.id for request in engine.requests]
    assert all(id.startswith("mine-") for id in ids)
    assert len(set(ids)) == 2


@pytest.mark.parametrize("given", ["", "x" * 129, "a\tb", "é", None])
def test_a_strange_id_is_replaced(given: str | None) -> None:
    assert request_id(given) != request_id(given)
    assert re.fullmatch(r"req_[0-9a-f]{32}", request_id(given))


async def test_every_answer_has_an_id() -> None:
    async with client(make_app(MockEngine("mock", failure="crash"))) as http:
        for path in ("/health", "/nowhere", "/v1/models"):
            assert (await http.get(path)).headers["x-request-id"].startswith("req_")
        crashed = await http.post(CHAT, json=BODY)
    assert crashed.status_code == 500
    assert crashed.headers["x-request-id"].startswith("req_")


async def test_the_server_may_answer_the_id() -> None:
    engine = MockEngine("mock")
    given = AppSettings(models=[ModelSettings(name="mock", factory="models.mock:MockEngine")])
    app = create_app({"mock": engine}, given, Probes(), answer_request_id=False)
    answer = await post(app, CHAT, BODY, **{"x-request-id": "mine"})
    assert "x-request-id" not in answer.headers
    assert engine.requests[0].id.startswith("mine-")


@pytest.mark.parametrize("stream", [False, True])
async def test_one_line_a_request(caplog: pytest.LogCaptureFixture, stream: bool) -> None:
    app = make_app(MockEngine("mock", pieces=["a", "b"]))
    await post(app, CHAT, {**BODY, "stream": stream, "n": 2}, **{"x-request-id": "mine"})
    line = fields(caplog)
    assert line["id"] == "mine"
    assert (line["model"], line["route"], line["status"]) == ("mock", f"POST:{CHAT}", "200")
    assert (line["prompt_tokens"], line["completion_tokens"]) == ("2", "4")
    assert 0 <= float(line["first_token_s"]) <= float(line["total_s"])
    assert (line["finish"], line["error"]) == ("stop", "-")


async def test_errors_are_in_the_line(caplog: pytest.LogCaptureFixture) -> None:
    await chat(make_app(MockEngine("mock", failure="failed")))
    line = fields(caplog)
    assert (line["status"], line["finish"]) == ("500", "error")
    assert line["error"] == '"The mock engine failed."'


async def test_an_error_in_a_stream_is_in_the_line(caplog: pytest.LogCaptureFixture) -> None:
    await chat(make_app(MockEngine("mock", failure="failed", fail_after=1)), stream=True)
    assert (fields(caplog)["status"], fields(caplog)["finish"]) == ("200", "error")


async def test_a_crash_is_logged_with_its_id(caplog: pytest.LogCaptureFixture) -> None:
    app = make_app(MockEngine("mock", failure="crash"))
    await post(app, CHAT, BODY, **{"x-request-id": "mine"})
    (record,) = [one for one in caplog.records if one.exc_info]
    assert "id=mine" in record.getMessage()


async def test_prompts_are_logged_only_when_asked(caplog: pytest.LogCaptureFixture) -> None:
    await chat(make_app(), messages=SECRET)
    await chat(make_app(MockEngine("mock", failure="invalid")), messages=SECRET)
    await complete(make_app(), prompt=["a secret", 5])
    await chat(make_app(), messages=[{"role": "a secret"}])
    assert "a secret" not in caplog.text


@pytest.mark.parametrize(
    ("path", "asked"),
    [
        (CHAT, {"messages": SECRET}),
        ("/v1/chat/completions/input_tokens", {"messages": SECRET}),
        ("/v1/messages/count_tokens", {"messages": SECRET}),
        ("/v1/embeddings", {"input": "a secret"}),
        ("/tokenize", {"prompt": "a secret"}),
    ],
)
async def test_prompts_are_logged_on_every_route_that_takes_them(
    caplog: pytest.LogCaptureFixture, path: str, asked: dict[str, object]
) -> None:
    await post(make_app(log_prompts=True), path, {"model": "mock", **asked})
    assert "a secret" in caplog.text


async def test_probes_are_quiet(caplog: pytest.LogCaptureFixture) -> None:
    async with client(make_app()) as http:
        for path in ("/health", "/ready", "/metrics"):
            await http.get(path)
    assert caplog.records == []


async def test_a_line_stays_one_line(caplog: pytest.LogCaptureFixture) -> None:
    async with client(make_app()) as http:
        await http.get("/a%0Aid=forged%20b" + "c" * 300, headers={"x-request-id": "a b=c"})
    (line,) = [record.getMessage() for record in caplog.records]
    assert len(line.splitlines()) == 1
    assert line.startswith('id="a b=c" model=- route="GET:/a\\nid=forged b')
    assert len(line) < 500


async def test_a_client_that_breaks_off_is_not_our_failure(
    caplog: pytest.LogCaptureFixture,
) -> None:
    engine = MockEngine("mock")
    body = json.dumps({**BODY, "stream": True}).encode()
    messages: list[Message] = [{"type": "http.request", "body": body}]

    async def receive() -> Message:
        if messages:
            return messages.pop()
        return await asyncio.Future()

    async def send(message: Message) -> None:
        raise BrokenPipeError

    await make_app(engine)(scope_of(CHAT), receive, send)
    assert engine.live == 0
    assert "finish=cancelled" in caplog.text
    assert not [one for one in caplog.records if one.exc_info]
