"""What is wrong with an input file is told, line by line, and nothing of it is run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from deployments.batches.lines import Limits, check, parse
from models.mock import MockEngine
from tests.deployments.batches.serving import CHAT, a_line, jsonl, running

LIMITS = Limits(lines=4, line_bytes=400)
RIGHT = a_line("right")


def checked(tmp_path: Path, data: bytes, done: tuple[str, ...] = ()) -> Any:
    path = tmp_path / "input"
    path.write_bytes(data)
    return check(path, CHAT, LIMITS, done)


@pytest.mark.parametrize(
    ("data", "line", "code", "param"),
    [
        (b"", None, "empty_file", None),
        (b"\n \n\r\n", None, "empty_file", None),
        (jsonl([RIGHT]) + b'{"custom_id": \n', 2, "invalid_json_line", None),
        (jsonl([RIGHT]) + b"\xff\n", 2, "invalid_json_line", None),
        (b"\n" + jsonl([[1]]), 2, "invalid_json_line", None),
        (jsonl([RIGHT, RIGHT]), 2, "duplicate_custom_id", "custom_id"),
        (jsonl([a_line("a", "/v1/completions")]), 1, "mismatched_url", "url"),
        (jsonl([{**RIGHT, "method": "GET"}]), 1, "invalid_value", "method"),
        (jsonl([{**RIGHT, "body": "x"}]), 1, "invalid_type", "body"),
        (jsonl([{**RIGHT, "custom_id": 7}]), 1, "invalid_type", "custom_id"),
        (jsonl([{**RIGHT, "custom_id": ""}]), 1, "invalid_value", "custom_id"),
        (jsonl([{**RIGHT, "more": 1}]), 1, "unknown_parameter", "more"),
        (jsonl([{"custom_id": "a"}]), 1, "missing_required_parameter", "method"),
        (jsonl([RIGHT, a_line("b", prompt="x" * 400)]), 2, "line_too_large", None),
        (jsonl(a_line(str(i)) for i in range(5)), 5, "too_many_requests", None),
    ],
)
def test_the_first_error(
    tmp_path: Path, data: bytes, line: int | None, code: str, param: str | None
) -> None:
    first = checked(tmp_path, data).errors[0]
    assert (first.line, first.code, first.param) == (line, code, param)


def test_every_line_is_found_whatever_ends_it(tmp_path: Path) -> None:
    plain = json.dumps(RIGHT).encode()
    data = b"\xef\xbb\xbf" + plain + b"\r\n\n" + json.dumps(a_line("last")).encode()
    found = checked(tmp_path, data)
    assert (found.total, found.errors, found.model) == (2, [], "mock")
    with (tmp_path / "input").open("rb") as file:
        read = []
        for place in found.ahead:
            file.seek(place)
            read.append(parse(file.readline()).custom_id)
    assert read == ["right", "last"]


def test_lines_behind_one_that_is_too_long_are_found(tmp_path: Path) -> None:
    found = checked(tmp_path, jsonl([a_line("a", prompt="x" * 2000), {**RIGHT, "url": "other"}]))
    assert [(error.line, error.code) for error in found.errors] == [
        (1, "line_too_large"),
        (2, "mismatched_url"),
    ]


def test_what_is_done_is_not_ahead(tmp_path: Path) -> None:
    found = checked(tmp_path, jsonl([a_line("a"), a_line("b"), a_line("c")]), done=("b",))
    assert (found.total, len(found.ahead)) == (3, 2)


def test_models_are_told_if_they_are_one(tmp_path: Path) -> None:
    assert checked(tmp_path, jsonl([a_line("a"), a_line("b", model="other")])).model is None


async def test_a_wrong_file_fails_its_batch(tmp_path: Path) -> None:
    engine = MockEngine("mock")
    wrong = [a_line("a"), a_line("a"), a_line("b", "/v1/embeddings")]
    async with running(tmp_path, engine) as server:
        client = server.client()
        batch = await client.run(wrong)
        assert batch.status == "failed"
        assert batch.failed_at is not None
        assert (batch.output_file_id, batch.error_file_id) == (None, None)
        assert batch.errors is not None
        assert batch.errors.data is not None
        told = [(error.code, error.line) for error in batch.errors.data]
        assert told == [("duplicate_custom_id", 2), ("mismatched_url", 3)]
        assert len((await client.api.files.list()).data) == 1
    assert not engine.requests


async def test_errors_that_are_told_are_bounded(tmp_path: Path) -> None:
    async with running(tmp_path) as server:
        batch = await server.client().run([{}] * 500)
    assert batch.errors is not None
    assert batch.errors.data is not None
    assert len(batch.errors.data) == 100
