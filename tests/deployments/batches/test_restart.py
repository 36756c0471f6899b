"""A server that ends in the middle of a batch, in whichever way, and another that goes on."""

from __future__ import annotations

import asyncio
import json
import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import openai
import pytest

from deployments.batches.disk import Space, open_when_free
from deployments.batches.output import Output
from deployments.batches.wire import BatchRecord
from models.mock import MockEngine
from tests.deployments.batches.serving import a_line, answered, files_in, ids, jsonl, running

LINES = 40


def record_of(folder: Path, id: str) -> BatchRecord:
    return BatchRecord.model_validate_json((folder / "batches" / f"{id}.json").read_bytes())


async def half_done(tmp_path: Path) -> str:
    """The id of a batch some of whose lines were answered when its server ended."""
    engine = MockEngine("mock", first_token_s=0.01)
    async with running(tmp_path, engine, at_once=2) as server:
        client = server.client()
        batch = await client.start(jsonl(a_line(str(i)) for i in range(LINES)))
        await client.until_answered(batch, 5)
    return batch.id


async def gone_on(tmp_path: Path, id: str) -> tuple[int, list[str]]:
    """How many lines the next server had to ask, and the ids of those of the output."""
    engine = MockEngine("mock")
    async with running(tmp_path, engine) as server:
        client = server.client()
        batch = await client.until_ended(await client.api.batches.retrieve(id))
        assert batch.status == "completed"
        assert answered(batch) == LINES
        lines = await client.lines(batch.output_file_id)
        tokens = sum(line["response"]["body"]["usage"]["total_tokens"] for line in lines)
        assert batch.usage is not None
        assert batch.usage.total_tokens == tokens
    return len(engine.requests), ids(lines)


EVERY = sorted(map(str, range(LINES)))


async def test_the_next_one_asks_for_what_is_missing(tmp_path: Path) -> None:
    id = await half_done(tmp_path)
    asked, found = await gone_on(tmp_path, id)
    assert found == EVERY
    assert 0 < asked <= LINES - 5


@pytest.mark.parametrize("left", [-1, -30, 1])
async def test_a_line_that_was_half_written_is_asked_again(tmp_path: Path, left: int) -> None:
    id = await half_done(tmp_path)
    output = tmp_path / "files" / record_of(tmp_path, id).output_file_id
    whole = output.read_bytes()
    *others, last = whole.splitlines(keepends=True)
    output.write_bytes(b"".join(others) + last[:left])
    asked, found = await gone_on(tmp_path, id)
    assert found == EVERY
    assert asked == LINES - len(others)


async def test_what_was_never_written_whole_is_no_line(tmp_path: Path) -> None:
    path = tmp_path / "output"
    path.write_bytes(b'{"a": 1}\n\x00\x00\x00\n{"a": 2}\n')
    space = Space(1000)
    output = Output(path, space)
    assert [*output.read()] == [{"a": 1}]
    output.append({"a": 3})
    output.close()
    assert [json.loads(line) for line in path.read_bytes().splitlines()] == [{"a": 1}, {"a": 3}]
    assert space.used == path.stat().st_size


async def test_an_output_that_is_a_file_already_takes_its_space_once(tmp_path: Path) -> None:
    async with running(tmp_path) as server:
        text = "x" * 2**19
        lines = jsonl([a_line("one", prompt=text, echo=True, url="/v1/completions")])
        batch = await server.client().start(lines, "/v1/completions")
        await server.client().until_ended(batch)
    record = record_of(tmp_path, batch.id)
    record.become("finalizing", record.created_at)  # the last that the disk knew of it
    (tmp_path / "batches" / f"{batch.id}.json").write_text(record.model_dump_json())
    async with running(tmp_path, max_folder_mib=1.4) as server:
        client = server.client()
        assert (await client.until_ended(batch)).status == "completed"
        await client.upload(b"x" * 2**18)


async def test_a_batch_that_was_being_cancelled_ends_so(tmp_path: Path) -> None:
    id = await half_done(tmp_path)
    record = record_of(tmp_path, id)
    record.become("cancelling", record.created_at)
    (tmp_path / "batches" / f"{id}.json").write_text(record.model_dump_json())
    engine = MockEngine("mock")
    async with running(tmp_path, engine) as server:
        client = server.client()
        batch = await client.until_ended(await client.api.batches.retrieve(id))
        assert batch.status == "cancelled"
        assert not engine.requests
        lines = [
            *await client.lines(batch.output_file_id),
            *await client.lines(batch.error_file_id),
        ]
    assert ids(lines) == EVERY


async def test_a_batch_whose_time_was_over_meanwhile_keeps_what_was_done(tmp_path: Path) -> None:
    id = await half_done(tmp_path)
    record = record_of(tmp_path, id)
    record.expires_at = record.created_at - 1
    (tmp_path / "batches" / f"{id}.json").write_text(record.model_dump_json())
    async with running(tmp_path) as server:
        client = server.client()
        batch = await client.until_ended(await client.api.batches.retrieve(id))
        assert batch.status == "expired"
        done = await client.lines(batch.output_file_id)
        undone = await client.lines(batch.error_file_id)
    assert len(done) >= 5
    assert ids([*done, *undone]) == EVERY


async def test_what_had_ended_is_still_told(tmp_path: Path) -> None:
    async with running(tmp_path) as server:
        batch = await server.client().run([a_line("one")])
    async with running(tmp_path) as server:
        client = server.client()
        assert (await client.api.batches.retrieve(batch.id)).to_dict() == batch.to_dict()
        assert ids(await client.lines(batch.output_file_id)) == ["one"]


async def test_the_next_one_waits_for_the_folder_and_holds_nobody_up(tmp_path: Path) -> None:
    async def next_life() -> str:
        async with running(tmp_path) as server:
            return (await server.client().api.batches.retrieve(batch.id)).status

    async with running(tmp_path) as server:
        client = server.client()
        batch = await client.start(jsonl([a_line("one")]))
        following = asyncio.create_task(next_life())
        assert (await client.until_ended(batch)).status == "completed"
        assert not following.done()
    assert await following == "completed"


async def test_a_folder_that_stays_in_use_is_an_error(tmp_path: Path) -> None:
    async with running(tmp_path):
        with pytest.raises(OSError, match="another server uses"):
            await open_when_free(str(tmp_path), patience_s=0.2)
    _, lock = await open_when_free(str(tmp_path), patience_s=0)
    os.close(lock)


async def test_remains_of_nothing_are_removed(tmp_path: Path) -> None:
    async with running(tmp_path):
        (tmp_path / "uploads" / "file-1").touch()
        (tmp_path / "files" / "file-2").touch()
        (tmp_path / "files" / "file-3.new").touch()
    async with running(tmp_path):
        assert files_in(tmp_path) == []


@pytest.mark.parametrize("left", [b"", b'{"id": "fi', b"\x00" * 100, b"{}"])
async def test_a_broken_record_of_a_file_is_left_as_it_is(
    tmp_path: Path, left: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    async with running(tmp_path) as server:
        client = server.client()
        broken, whole = [await client.upload(b"{}\n") for _ in range(2)]
    record = tmp_path / "files" / f"{broken.id}.json"
    record.write_bytes(left)
    async with running(tmp_path) as server:
        client = server.client()
        assert [file.id async for file in client.api.files.list()] == [whole.id]
        assert (await client.run([a_line("one")])).status == "completed"
    assert str(record) in caplog.text
    assert record.read_bytes() == left
    assert (tmp_path / "files" / broken.id).read_bytes() == b"{}\n"


async def test_a_broken_record_of_a_batch_is_left_as_it_is(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    broken = await half_done(tmp_path)
    record = tmp_path / "batches" / f"{broken}.json"
    before = record.read_bytes()
    record.write_bytes(before[:-20])
    async with running(tmp_path) as server:
        assert (await server.client().run([a_line("one")])).status == "completed"
    assert str(record) in caplog.text
    assert record.read_bytes() == before[:-20]
    record.write_bytes(before)  # mended by hand
    asked, found = await gone_on(tmp_path, broken)
    assert found == EVERY
    assert asked <= LINES - 5


async def test_a_disk_that_takes_no_more_loses_no_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("deployments.batches.runner.DISK_RETRY_S", 0.01)
    async with running(tmp_path, at_once=3) as server:
        client = server.client()
        file = await client.upload(jsonl(a_line(str(i)) for i in range(LINES)))
        with small_files(6000):
            batch = await client.api.batches.create(
                input_file_id=file.id, endpoint="/v1/chat/completions", completion_window="24h"
            )
            await client.until_answered(batch, 5)
            await asyncio.sleep(0.3)
            stuck = await client.api.batches.retrieve(batch.id)
            assert stuck.status == "in_progress"
            assert answered(stuck) < LINES
        ended = await client.until_ended(batch)
        assert ids(await client.lines(ended.output_file_id)) == EVERY


LONG = {str(i): "x" * 512 for i in range(8)}


async def test_a_disk_that_takes_no_file_is_told_and_keeps_nothing_of_it(tmp_path: Path) -> None:
    async with running(tmp_path) as server:
        client = server.client()
        for most, size in ((1, 5), (5, 5)):  # not even the contents, and no record beside them
            with small_files(most), pytest.raises(openai.InternalServerError) as refused:
                await client.upload(b"x" * size)
            assert refused.value.status_code == 503
            assert "File too large" in refused.value.message
        assert files_in(tmp_path) == []
        file = await client.upload(jsonl([a_line("one")]))
        with small_files(5), pytest.raises(openai.InternalServerError, match="File too large"):
            await client.api.batches.create(
                input_file_id=file.id, endpoint="/v1/chat/completions", completion_window="24h"
            )
        assert (await client.api.batches.list()).data == []
        assert [*(tmp_path / "batches").iterdir()] == []


@contextmanager
def small_files(most: int) -> Iterator[None]:
    """No file of this process can become larger than so many bytes."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (most, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


async def test_an_input_that_is_gone_fails_its_batch_alone(tmp_path: Path) -> None:
    id = await half_done(tmp_path)
    input = record_of(tmp_path, id).input_file_id
    (tmp_path / "files" / input).unlink()
    async with running(tmp_path) as server:
        client = server.client()
        batch = await client.until_ended(await client.api.batches.retrieve(id))
        assert batch.status == "failed"
        assert batch.errors is not None
        assert batch.errors.data is not None
        assert [error.code for error in batch.errors.data] == ["missing_file"]
        assert (await client.run([a_line("one")])).status == "completed"


async def test_no_batch_has_ended_before_the_disk_knows_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("deployments.batches.runner.DISK_RETRY_S", 0.01)
    async with running(tmp_path, MockEngine("mock", first_token_s=0.2)) as server:
        client = server.client()
        batch = await client.start(jsonl([a_line("one")]), metadata=LONG)
        await client.until(batch, "in_progress")
        with small_files(3000):  # enough for an answer, too few for the record
            await asyncio.sleep(0.5)
            assert (await client.api.batches.retrieve(batch.id)).status == "in_progress"
            with pytest.raises(openai.BadRequestError, match="in use"):
                await client.api.files.delete(batch.input_file_id)
        assert (await client.until_ended(batch)).status == "completed"
