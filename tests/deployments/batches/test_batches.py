"""Batches through the official client: what comes of each line."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest
from jsonschema import Draft202012Validator

from deployments.batches.patience import TRIES
from deployments.batches.wire import Usage
from deployments.graph import Graph
from deployments.openapi.document import document
from models.mock import MockEngine
from models.request import BACKGROUND, User
from tests.deployments.batches.serving import CHAT, a_line, ids, jsonl, running
from tests.deployments.exposed import lines
from tests.deployments.serving import Counting, client, make_app


def said(line: dict[str, Any]) -> str:
    return str(line["response"]["body"]["choices"][0]["message"]["content"])


async def test_every_line_is_answered_as_a_client_is(tmp_path: Path) -> None:
    async with running(tmp_path, MockEngine("mock", text="Four words and more")) as server:
        client = server.client()
        batch = await client.run(a_line(f"line {i}") for i in range(20))
        assert batch.status == "completed"
        assert batch.request_counts is not None
        assert batch.request_counts.model_dump() == {"total": 20, "completed": 20, "failed": 0}
        assert batch.error_file_id is None
        assert batch.model == "mock"
        lines = await client.lines(batch.output_file_id)
    assert ids(lines) == sorted(f"line {i}" for i in range(20))
    assert {said(line) for line in lines} == {"Four words and more"}
    assert {line["response"]["status_code"] for line in lines} == {200}
    assert len({line["id"] for line in lines}) == len({str(line["response"]) for line in lines})
    assert all(line["error"] is None for line in lines)
    assert all(line["response"]["request_id"].startswith("req_") for line in lines)
    tokens = sum(line["response"]["body"]["usage"]["completion_tokens"] for line in lines)
    assert batch.usage is not None
    assert batch.usage.output_tokens == tokens
    assert batch.usage.total_tokens == batch.usage.input_tokens + tokens


async def test_times_and_metadata_are_told(tmp_path: Path) -> None:
    async with running(tmp_path) as server:
        client = server.client()
        begun = await client.start(jsonl([a_line("one")]), metadata={"run": "7"})
        assert begun.status == "validating"
        assert begun.expires_at == begun.created_at + 24 * 3600
        batch = await client.until_ended(begun)
        assert batch.metadata == {"run": "7"}
        moments = [batch.created_at, batch.in_progress_at, batch.finalizing_at, batch.completed_at]
        assert None not in moments
        assert moments == sorted(moments, key=lambda moment: moment or 0)
        assert (batch.failed_at, batch.cancelled_at, batch.expired_at) == (None, None, None)
        output = await client.api.files.retrieve(str(batch.output_file_id))
        assert (output.purpose, output.filename) == ("batch_output", f"{batch.id}_output.jsonl")


async def test_errors_of_requests_are_lines_of_the_error_file(tmp_path: Path) -> None:
    wrong = {
        "no model": a_line(
            "no model", model="unknown", messages=[{"role": "user", "content": "x"}]
        ),
        "hot": a_line("hot", messages=[{"role": "user", "content": "x"}], temperature=9),
        "streams": a_line("streams", messages=[{"role": "user", "content": "x"}], stream=True),
    }
    async with running(tmp_path) as server:
        client = server.client()
        batch = await client.run([a_line("right"), *wrong.values()])
        assert batch.status == "completed"
        assert batch.request_counts is not None
        assert batch.request_counts.model_dump() == {"total": 4, "completed": 1, "failed": 3}
        assert ids(await client.lines(batch.output_file_id)) == ["right"]
        lines = await client.lines(batch.error_file_id)
        found = {line["custom_id"]: line["response"] for line in lines}
        assert found.keys() == wrong.keys()
        assert {id: one["status_code"] for id, one in found.items()} == {
            "no model": 404,
            "hot": 400,
            "streams": 400,
        }
        for id in ("no model", "hot"):
            async with httpx.AsyncClient(
                transport=httpx.ASGITransport(server.app), base_url="http://test"
            ) as http:
                asked = await http.post(CHAT, json=wrong[id]["body"])
            assert found[id]["body"] == asked.json()


@pytest.mark.parametrize("prompt", ["\u732b" * 500, [7] * 500])
async def test_a_line_that_is_no_larger_than_it_may_be_is_answered(
    tmp_path: Path, prompt: Any
) -> None:
    line = a_line("one", "/v1/completions", prompt=prompt, max_tokens=1)
    data = json.dumps(line, ensure_ascii=False, separators=(",", ":")).encode()
    async with running(tmp_path, max_body_bytes=len(data)) as server:
        client = server.client()
        batch = await client.until_ended(await client.start(data, "/v1/completions"))
        assert ids(await client.lines(batch.output_file_id)) == ["one"]


@pytest.mark.parametrize(
    ("endpoint", "body"),
    [
        ("/v1/completions", {"prompt": "Once", "echo": True, "logprobs": 1, "max_tokens": 1}),
        ("/v1/responses", {"input": "Hi"}),
        ("/v1/embeddings", {"model": "vectors", "input": ["a", "bc"]}),
    ],
)
async def test_other_endpoints(tmp_path: Path, endpoint: str, body: dict[str, Any]) -> None:
    async with running(tmp_path, MockEngine("mock"), Counting("vectors")) as server:
        client = server.client()
        batch = await client.run([a_line("one", endpoint, **body)], endpoint)
        [line] = await client.lines(batch.output_file_id)
        assert batch.usage is not None
        usage = line["response"]["body"]["usage"]
        assert batch.usage.total_tokens == usage["total_tokens"] > 0


async def test_lines_wait_where_the_model_has_no_room(tmp_path: Path) -> None:
    engine = MockEngine("mock", max_running=2, retry_after=0.01, first_token_s=0.005)
    async with running(tmp_path, engine, at_once=8) as server:
        batch = await server.client().run(a_line(str(i)) for i in range(24))
    assert batch.request_counts is not None
    assert batch.request_counts.completed == 24
    assert len(engine.requests) > 24


async def test_what_fails_again_and_again_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("deployments.batches.patience.FIRST_S", 0.01)
    engine = MockEngine("mock", failure="failed", fail_after=1)
    async with running(tmp_path, engine) as server:
        client = server.client()
        batch = await client.run([a_line("one")])
        [line] = await client.lines(batch.error_file_id)
    assert line["response"]["status_code"] == 500
    assert len(engine.requests) == TRIES


async def test_no_more_are_asked_at_once_than_half_of_the_places(tmp_path: Path) -> None:
    engine = MockEngine("mock", first_token_s=0.01)
    most = 0
    async with running(tmp_path, engine) as server:
        client = server.client()
        batch = await client.start(jsonl(a_line(str(i)) for i in range(64)))
        while (await client.api.batches.retrieve(batch.id)).status != "completed":
            most = max(most, engine.live)
            await asyncio.sleep(0.001)
    assert most == 16


async def test_they_are_in_the_background_in_the_name_of_their_key(tmp_path: Path) -> None:
    engine = MockEngine("mock")
    async with running(tmp_path, engine, api_keys=["one", "two"]) as server:
        for key in ("one", "two"):
            await server.client(key).run([a_line(key)])
        messages = [{"role": "user", "content": "x"}]
        asked = {"model": "mock", "messages": messages, "user": "ann"}
        async with client(server.app) as http:
            await http.post(CHAT, json=asked, headers={"authorization": "Bearer one"})
    first, second, interactive = engine.requests
    assert first.user.background
    assert second.user.background
    assert first.user == User(BACKGROUND, interactive.user.key)
    assert first.user != second.user
    assert not interactive.user.background


async def test_owners_and_their_batches_take_turns(tmp_path: Path) -> None:
    engine = MockEngine("mock", first_token_s=0.002)
    async with running(tmp_path, engine, at_once=1, api_keys=["one", "two"]) as server:
        heavy, light = server.client("one"), server.client("two")
        many = await heavy.start(jsonl(a_line(f"many {i}") for i in range(30)))
        await heavy.until(many, "in_progress")
        few = [
            await one.start(jsonl(a_line(f"{name} {i}") for i in range(3)))
            for one, name in ((heavy, "few"), (light, "light"))
        ]
        for one, batch in ((heavy, few[0]), (light, few[1]), (heavy, many)):
            assert (await one.until_ended(batch)).status == "completed"
    order = [str(request.prompt.messages[0]["content"]) for request in engine.requests]  # type: ignore[union-attr]
    assert order.index("Say light 2") < 25
    assert order.index("Say few 2") < 35
    assert order.index("Say light 2") < order.index("Say few 2")


async def test_a_batch_is_cancelled(tmp_path: Path) -> None:
    engine = MockEngine("mock", first_token_s=0.02)
    async with running(tmp_path, engine, at_once=2) as server:
        client = server.client()
        batch = await client.start(jsonl(a_line(str(i)) for i in range(50)))
        await client.until_answered(batch, 3)
        assert (await client.api.batches.cancel(batch.id)).status == "cancelling"
        ended = await client.until_ended(batch)
        assert ended.status == "cancelled"
        assert engine.live == 0
        done = await client.lines(ended.output_file_id)
        undone = await client.lines(ended.error_file_id)
        assert 2 < len(done) < 50
        assert ids([*done, *undone]) == sorted(map(str, range(50)))
        assert {line["error"]["code"] for line in undone} == {"batch_cancelled"}
        assert {line["response"] for line in undone} == {None}
        with pytest.raises(openai.BadRequestError, match="Cannot cancel"):
            await client.api.batches.cancel(batch.id)


async def test_a_batch_that_takes_too_long_keeps_what_was_done(tmp_path: Path) -> None:
    engine = MockEngine("mock", first_token_s=0.05)
    async with running(tmp_path, engine, at_once=1, window_s=2) as server:
        client = server.client()
        batch = await client.run(a_line(str(i)) for i in range(100))
        assert batch.status == "expired"
        assert batch.expired_at is not None
        done = await client.lines(batch.output_file_id)
        undone = await client.lines(batch.error_file_id)
    assert 0 < len(done) < 100
    assert ids([*done, *undone]) == sorted(map(str, range(100)))
    assert {line["error"]["code"] for line in undone} == {"batch_expired"}


async def test_lists_come_in_pages(tmp_path: Path) -> None:
    async with running(tmp_path) as server:
        client = server.client()
        made = [(await client.start(jsonl([a_line(str(i))]))).id for i in range(5)]
        page = await client.api.batches.list(limit=2)
        assert [batch.id for batch in page.data] == made[:2:-1]
        assert page.has_more
        rest = await client.api.batches.list(limit=3, after=page.data[-1].id)
        assert [batch.id for batch in rest.data] == made[2::-1]
        assert not rest.has_more
        assert [batch.id async for batch in client.api.batches.list(limit=1)] == made[::-1]
        with pytest.raises(openai.BadRequestError, match="batch_unknown"):
            await client.api.batches.list(after="batch_unknown")
        with pytest.raises(openai.BadRequestError, match="limit"):
            await client.api.batches.list(limit=101)


async def test_a_key_sees_its_own_alone(tmp_path: Path) -> None:
    async with running(tmp_path, api_keys=["one", "two"]) as server:
        mine, other = server.client("one"), server.client("two")
        batch = await mine.run([a_line("one")])
        for file_id in (batch.input_file_id, str(batch.output_file_id)):
            for ask in (other.api.files.retrieve, other.api.files.content, other.api.files.delete):
                with pytest.raises(openai.NotFoundError, match="No such File"):
                    await ask(file_id)
        for look in (other.api.batches.retrieve, other.api.batches.cancel):
            with pytest.raises(openai.NotFoundError, match="No batch found"):
                await look(batch.id)
        with pytest.raises(openai.BadRequestError, match="No such File"):
            await other.api.batches.create(
                input_file_id=batch.input_file_id,
                endpoint="/v1/chat/completions",
                completion_window="24h",
            )
        assert (await other.api.batches.list()).data == []
        assert (await other.api.files.list()).data == []
        assert len((await mine.api.files.list()).data) == 2
        with pytest.raises(openai.AuthenticationError):
            await server.client("three").api.batches.list()


@pytest.mark.parametrize(
    ("wrong", "param"),
    [
        ({"endpoint": "/v1/images/generations"}, "endpoint"),
        ({"completion_window": "1h"}, "completion_window"),
        ({"metadata": {"k" * 65: "v"}}, "metadata"),
        ({"metadata": {str(i): "v" for i in range(17)}}, "metadata"),
        ({"input_file_id": "file-unknown"}, "input_file_id"),
        ({"priority": 1}, "priority"),
        ({"output_expires_after": {"anchor": "created_at", "seconds": 1}}, "output_expires_after"),
    ],
)
async def test_what_a_batch_may_not_be(tmp_path: Path, wrong: dict[str, Any], param: str) -> None:
    async with running(tmp_path) as server:
        file = await server.client().upload(jsonl([a_line("one")]))
        body = {"input_file_id": file.id, "endpoint": CHAT, "completion_window": "24h"}
        async with client(server.app) as http:
            answer = await http.post("/v1/batches", json={**body, **wrong})
    assert answer.status_code == 400
    assert answer.json()["error"]["param"].startswith(param)


async def test_answers_are_as_the_document_says(tmp_path: Path) -> None:
    whole = document(["mock"], keys=False)

    def check(name: str, value: Any) -> None:
        Draft202012Validator({**whole, "$ref": f"#/components/schemas/{name}"}).validate(value)

    async with running(tmp_path) as server, client(server.app) as http:
        mine = server.client()
        begun = await mine.start(jsonl([a_line("one")]))
        check("Batch", json.loads(begun.to_json()))
        await mine.until_ended(begun)
        ended = await mine.run([{}, a_line("one")])
        check("Batch", (await http.get(f"/v1/batches/{ended.id}")).json())
        check("BatchList", (await http.get("/v1/batches")).json())
        files = (await http.get("/v1/files")).json()
        check("FileList", files)
        check("File", (await http.get(f"/v1/files/{files['data'][0]['id']}")).json())
        check("DeletedFile", (await http.delete(f"/v1/files/{files['data'][0]['id']}")).json())


async def test_metrics_tell_of_batches(tmp_path: Path) -> None:
    async with running(tmp_path, MockEngine("mock", first_token_s=5), at_once=1) as server:
        client = server.client()
        await client.run([{}])
        await client.until(await client.start(jsonl([a_line("one"), a_line("two")])), "in_progress")
        seen = lines(await Graph({}, batches=server.desk).metrics())
    assert seen['stepserve_batches{status="failed"}'] == 1
    assert seen['stepserve_batches{status="in_progress"}'] == 1
    assert seen['stepserve_batch_requests{outcome="ahead"}'] == 2


@pytest.mark.parametrize("path", ["/v1/files", "/v1/batches", "/v1/files/file-1/content"])
async def test_a_server_without_a_folder_says_so(path: str) -> None:
    async with client(make_app()) as http:
        answer = await http.get(path)
    assert answer.status_code == 404
    assert "'batches'" in answer.json()["error"]["message"]


def test_usage_is_summed_over_all_forms_of_it() -> None:
    usage = Usage()
    details = {"cached_tokens": 1}
    usage.add({"usage": {"prompt_tokens": 3, "total_tokens": 3}})
    usage.add(
        {
            "usage": {
                "prompt_tokens": 5,
                "completion_tokens": 2,
                "total_tokens": 7,
                "prompt_tokens_details": details,
                "completion_tokens_details": {"reasoning_tokens": 1},
            }
        }
    )
    usage.add(
        {
            "usage": {
                "input_tokens": 4,
                "output_tokens": 6,
                "total_tokens": 10,
                "input_tokens_details": details,
                "output_tokens_details": {"reasoning_tokens": 3},
            }
        }
    )
    usage.add({})
    assert usage.shown() == {
        "input_tokens": 12,
        "input_tokens_details": {"cached_tokens": 2},
        "output_tokens": 8,
        "output_tokens_details": {"reasoning_tokens": 4},
        "total_tokens": 20,
    }
