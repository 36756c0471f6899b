"""Batches at ``serve run`` on the real default model, with the official client."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import time
from pathlib import Path
from typing import Any, Literal

import openai
import pytest
from openai.types import Batch

from tests.serving import Server, serving, starting, wait_until_ready, with_batches

pytestmark = pytest.mark.slow

MODEL = "smollm2-135m-instruct"
URL: Literal["/v1/completions"] = "/v1/completions"
ENDED = ("completed", "failed", "expired", "cancelled")
PATIENCE_S = 200
COUNT = 60


def lines(count: int, **body: Any) -> bytes:
    """That many requests, each to complete another text."""
    bodies = ({"model": MODEL, "prompt": f"{i}, {i + 1},", **body} for i in range(count))
    made = [
        {"custom_id": str(i), "method": "POST", "url": URL, "body": body}
        for i, body in enumerate(bodies)
    ]
    return "\n".join(map(json.dumps, made)).encode()


class Client:
    """Runs batches on a server."""

    def __init__(self, server: Server) -> None:
        self.api = openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", timeout=120)

    def start(self, data: bytes) -> Batch:
        file = self.api.files.create(file=("in.jsonl", data), purpose="batch")
        return self.api.batches.create(input_file_id=file.id, endpoint=URL, completion_window="24h")

    def until_answered(self, id: str, count: int) -> Batch:
        """So many lines at least, or all."""
        until = time.monotonic() + PATIENCE_S
        while (batch := self.api.batches.retrieve(id)).status not in ENDED:
            if answered(batch) >= count:
                break
            assert time.monotonic() < until, batch
            time.sleep(0.1)
        return batch

    def until_ended(self, id: str) -> Batch:
        return self.until_answered(id, 10**9)

    def ids(self, *files: str | None) -> list[str]:
        """The custom ids of all lines of these files, sorted."""
        texts = [self.api.files.content(file).text for file in files if file is not None]
        found = [json.loads(line)["custom_id"] for text in texts for line in text.splitlines()]
        return sorted(found)


def answered(batch: Batch) -> int:
    assert batch.request_counts is not None
    return batch.request_counts.completed


def numbers(count: int) -> list[str]:
    return sorted(map(str, range(count)))


def test_a_killed_server_goes_on_with_every_line_once(tmp_path: Path) -> None:
    config = with_batches(tmp_path)
    with starting(config) as server:
        wait_until_ready(server)
        batch = Client(server).start(lines(COUNT, max_tokens=16, ignore_eos=True))
        before = answered(Client(server).until_answered(batch.id, 5))
        for pid in server.processes():
            os.kill(pid, signal.SIGKILL)
    with serving(config) as server:
        client = Client(server)
        ended = client.until_ended(batch.id)
        assert ended.status == "completed"
        assert answered(ended) == COUNT
        assert client.ids(ended.output_file_id) == numbers(COUNT)
        asked = server.log().count("route=POST:/v1/completions status=200")
        assert 0 < asked <= COUNT - before  # what was answered is not asked again


def test_a_batch_is_cancelled(batches_server: Server) -> None:
    client = Client(batches_server)
    batch = client.start(lines(COUNT, max_tokens=16, ignore_eos=True))
    client.until_answered(batch.id, 5)
    assert client.api.batches.cancel(batch.id).status == "cancelling"
    ended = client.until_ended(batch.id)
    assert ended.status == "cancelled"
    assert client.ids(ended.output_file_id, ended.error_file_id) == numbers(COUNT)


def test_large_files_pass_through(batches_server: Server) -> None:
    client = Client(batches_server)
    data = os.urandom(2**20) * 60
    file = client.api.files.create(file=("large", data), purpose="batch")
    assert client.api.files.content(file.id).content == data
    assert client.api.files.delete(file.id).deleted


async def test_clients_who_wait_go_before_all_lines_of_a_batch(tmp_path: Path) -> None:
    """The batch holds all places when they come: only what runs then is in front of them."""
    places = 2
    config = with_batches(tmp_path, {"max_running": places}, at_once=2 * places)
    with serving(config) as server:
        batches = Client(server)
        batch = batches.start(lines(40, max_tokens=128, ignore_eos=True))  # few end meanwhile
        await asyncio.to_thread(batches.until_answered, batch.id, 2)
        client = openai.AsyncOpenAI(base_url=f"{server.url}/v1", api_key="none", timeout=120)

        async def ask() -> int:
            await client.completions.create(
                model=MODEL, prompt="Once", max_tokens=16, extra_body={"ignore_eos": True}
            )
            return answered(batches.api.batches.retrieve(batch.id))

        before = answered(batches.api.batches.retrieve(batch.id))
        after = await asyncio.gather(*(ask() for _ in range(4 * places)))
        await client.close()
        assert max(after) - before <= 2 * places
        batches.api.batches.cancel(batch.id)
