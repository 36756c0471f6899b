"""Files through the official client, and what a server does not take."""

from __future__ import annotations

import asyncio
import os
import time
from argparse import Namespace
from contextlib import suppress
from pathlib import Path
from threading import Thread
from typing import Any

import httpx
import openai
import pytest
from starlette.types import Message

from deployments.batches.disk import PARTS, Space
from deployments.batches.files import Files
from deployments.batches.wire import FileWish
from deployments.serve_command import effective_config, require_files
from models.errors import Invalid
from models.mock import MockEngine
from tests.deployments.batches.serving import a_line, files_in, jsonl, running
from tests.deployments.serving import client, scope_of
from tests.serving import with_batches

MIB = 2**20


async def test_a_file_comes_back_as_it_was(tmp_path: Path) -> None:
    data = bytes(range(256)) * 4096 * 3  # more than is sent at once
    async with running(tmp_path) as server:
        mine = server.client()
        file = await mine.upload(data)
        assert (file.bytes, file.filename, file.purpose) == (len(data), "input.jsonl", "batch")
        assert (await mine.api.files.retrieve(file.id)) == file
        assert (await mine.api.files.content(file.id)).content == data
        assert (await mine.api.files.delete(file.id)).deleted
        with pytest.raises(openai.NotFoundError):
            await mine.api.files.content(file.id)
    assert files_in(tmp_path) == []


async def test_files_are_kept_for_another_life(tmp_path: Path) -> None:
    async with running(tmp_path) as server:
        file = await server.client().upload(b"one\n")
    async with running(tmp_path) as server:
        assert (await server.client().api.files.content(file.id)).content == b"one\n"


async def test_lists_come_in_pages_in_either_order(tmp_path: Path) -> None:
    async with running(tmp_path) as server:
        mine = server.client()
        made = [(await mine.upload(b"x")).id for _ in range(3)]
        made.append(str((await mine.run([a_line("one")])).output_file_id))
        listed = [file.id async for file in mine.api.files.list(purpose="batch", order="asc")]
        assert listed[:3] == made[:3]
        outputs = await mine.api.files.list(purpose="batch_output")
        assert [file.id for file in outputs.data] == made[3:]
        page = await mine.api.files.list(limit=2, after=made[2])
        assert [file.id for file in page.data] == made[1::-1]
        assert not page.has_more


async def test_how_long_a_file_is_kept(tmp_path: Path) -> None:
    async with running(tmp_path, kept_days=2) as server:
        mine = server.client()
        usual = await mine.upload(b"x")
        assert usual.expires_at == usual.created_at + 2 * 24 * 3600
        short = await mine.api.files.create(
            file=b"x",
            purpose="batch",
            expires_after={"anchor": "created_at", "seconds": 3600},
        )
        assert short.expires_at == short.created_at + 3600
        for seconds in (3599, 30 * 24 * 3600 + 1):
            with pytest.raises(openai.BadRequestError, match="seconds"):
                await mine.api.files.create(
                    file=b"x",
                    purpose="batch",
                    expires_after={"anchor": "created_at", "seconds": seconds},
                )


async def test_what_has_expired_goes(tmp_path: Path) -> None:
    async with running(tmp_path) as server:
        file = await server.client().upload(b"x")
    record = tmp_path / "files" / f"{file.id}.json"
    expired = str(int(time.time()) - 1)
    record.write_text(record.read_text().replace(str(file.expires_at), expired))
    async with running(tmp_path) as server:
        with pytest.raises(openai.NotFoundError):
            await server.client().api.files.retrieve(file.id)
        assert not record.exists()
        assert not record.with_suffix("").exists()


async def test_the_output_of_a_batch_is_kept_as_long_as_was_asked(tmp_path: Path) -> None:
    async with running(tmp_path) as server:
        mine = server.client()
        begun = await mine.start(
            jsonl([a_line("one")]), output_expires_after={"anchor": "created_at", "seconds": 7200}
        )
        batch = await mine.until_ended(begun)
        output = await mine.api.files.retrieve(str(batch.output_file_id))
        assert output.expires_at == output.created_at + 7200


async def test_a_file_that_a_batch_reads_is_not_deleted(tmp_path: Path) -> None:
    async with running(tmp_path, MockEngine("mock", first_token_s=5)) as server:
        mine = server.client()
        batch = await mine.start(jsonl([a_line("one")]))
        with pytest.raises(openai.BadRequestError, match="in use"):
            await mine.api.files.delete(batch.input_file_id)
        await mine.api.batches.cancel(batch.id)
        await mine.until_ended(batch)
        assert (await mine.api.files.delete(batch.input_file_id)).deleted


@pytest.mark.parametrize(
    ("form", "files", "param"),
    [
        ({"purpose": "batch"}, {}, "file"),
        ({"purpose": "batch", "file": "text"}, {"x": b"1"}, "file"),
        ({}, {"file": b"x"}, "purpose"),
        ({"purpose": "fine-tune"}, {"file": b"x"}, "purpose"),
        ({"purpose": "batch"}, {"file": b""}, "file"),
        ({"purpose": "batch"}, {"file": b"x", "other": b"y"}, None),
        ({"purpose": "batch", "expires_after[anchor]": "now"}, {"file": b"x"}, "expires_after"),
    ],
)
async def test_wrong_forms(
    tmp_path: Path, form: dict[str, str], files: dict[str, bytes], param: str | None
) -> None:
    async with running(tmp_path) as server, client(server.app) as http:
        answer = await http.post("/v1/files", data=form, files=files or {"none": b""})
        assert answer.status_code == 400
        assert str(answer.json()["error"]["param"]).startswith(str(param))
        assert (await http.get("/v1/files")).json()["data"] == []
    assert [*(tmp_path / "uploads").iterdir()] == []


@pytest.mark.parametrize(
    ("content", "type"),
    [
        (b"{}", "application/json"),
        (b"{}", "multipart/form-data"),
        (b"--x\r\nno form\r\n", "multipart/form-data; boundary=x"),
    ],
)
async def test_what_is_no_form(tmp_path: Path, content: bytes, type: str) -> None:
    async with running(tmp_path) as server, client(server.app) as http:
        answer = await http.post("/v1/files", content=content, headers={"content-type": type})
        assert answer.status_code == 400
        assert "form" in answer.json()["error"]["message"]


async def test_a_file_that_is_too_large_is_refused_however_it_is_sent(tmp_path: Path) -> None:
    big = b"x" * (MIB + 1)
    async with running(tmp_path, max_file_mib=1) as server:
        mine = server.client()
        assert (await mine.upload(big[:-1])).bytes == MIB
        with pytest.raises(openai.APIStatusError) as refused:
            await mine.upload(big)
        assert refused.value.status_code == 413
        assert await status_of_endless_form(server.app) == 413
        assert len((await mine.api.files.list()).data) == 1
    assert [*(tmp_path / "uploads").iterdir()] == []


async def status_of_endless_form(app: Any) -> int:
    """A client that never says how much will come; what it was answered."""
    head = b'--x\r\nContent-Disposition: form-data; name="file"; filename="f"\r\n\r\n'
    parts, status = 0, 0

    async def receive() -> Message:
        nonlocal parts
        parts += 1
        assert parts < 100
        body = head if parts == 1 else b"x" * 65536
        return {"type": "http.request", "body": body, "more_body": True}

    async def send(message: Message) -> None:
        nonlocal status
        status = message.get("status", status)

    headers = [(b"content-type", b"multipart/form-data; boundary=x")]
    await app({**scope_of("/v1/files"), "headers": headers}, receive, send)
    return status


def test_an_upload_that_is_dropped_while_it_is_written_leaves_nothing(tmp_path: Path) -> None:
    for part in PARTS:
        (tmp_path / part).mkdir()
    space = Space(1000 * MIB)
    files = Files(tmp_path, space, 100 * MIB, 3600)
    for _ in range(30):
        upload = files.begin()
        writing = Thread(target=_write, args=(files, upload))
        writing.start()
        time.sleep(0.002)
        files.drop(upload)
        writing.join()
    files.sweep(set())
    assert space.used == 0
    assert files_in(tmp_path) == []


def test_files_are_listed_while_a_batch_brings_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for part in PARTS:
        (tmp_path / part).mkdir()
    files = Files(tmp_path, Space(1000 * MIB), MIB, 3600)
    wish = FileWish(owner="ann", filename="x", purpose="batch_output")
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)  # more of them in the time

    def adopt_many() -> None:
        for i in range(500):
            files.adopt(str(i), wish)

    adopting = Thread(target=adopt_many)
    adopting.start()
    seen = [len(files.of("ann"))]
    while adopting.is_alive():
        seen.append(len(files.of("ann")))
    adopting.join()
    assert seen == sorted(seen)
    assert len(files.of("ann")) == 500


def _write(files: Files, upload: str) -> None:
    with suppress(Invalid):
        for chunk in range(20):
            files.write(upload, chunk * MIB, bytes(MIB))


async def test_a_full_folder_takes_no_more_until_something_is_deleted(tmp_path: Path) -> None:
    async with running(tmp_path, max_folder_mib=1) as server:
        mine = server.client()
        first = await mine.upload(b"x" * (MIB // 2))
        with pytest.raises(openai.BadRequestError, match="no more than 1 MiB"):
            await mine.upload(b"x" * (MIB // 2))
        await mine.api.files.delete(first.id)
        await mine.upload(b"x" * (MIB // 2))


async def test_a_batch_waits_while_the_folder_is_full(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("deployments.batches.runner.DISK_RETRY_S", 0.01)
    engine = MockEngine("mock", text="word " * 2000)
    async with running(tmp_path, engine, max_folder_mib=0.25, at_once=1) as server:
        mine = server.client()
        spare = await mine.upload(b"x" * 150_000)
        batch = await mine.start(jsonl(a_line(str(i)) for i in range(12)))
        waiting = -1
        while waiting != (waiting := len(engine.requests)) or not waiting:
            await mine.until(batch, "in_progress")
            await asyncio.sleep(0.3)  # a line takes less
        assert waiting < 12
        await mine.api.files.delete(spare.id)
        ended = await mine.until_ended(batch)
        assert ended.request_counts is not None
        assert ended.request_counts.completed == 12


async def test_a_folder_is_of_one_server_alone(tmp_path: Path) -> None:
    config = effective_config(Namespace(config=with_batches(tmp_path), model="", host="", port=0))
    require_files(config)
    async with running(tmp_path / "batches"):
        with pytest.raises(OSError, match="another server uses"):
            require_files(config)
    require_files(config)
    async with running(tmp_path / "batches"):
        pass


async def test_nothing_of_another_is_read_by_a_strange_id(tmp_path: Path) -> None:
    async with running(tmp_path) as server:
        (tmp_path / "secret").write_bytes(b"x")
        async with httpx.AsyncClient(
            transport=httpx.ASGITransport(server.app), base_url="http://test"
        ) as http:
            for id in ("..%2Fsecret", "../secret", "in-use.lock"):
                assert (await http.get(f"/v1/files/{id}/content")).status_code == 404
