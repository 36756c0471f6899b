"""An application whose batches run in this process, over engines of the test."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Callable, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import openai
from openai.types import Batch, FileObject

from configs.settings import AppSettings, BatchSettings
from deployments.batches.local_desk import LocalDesk
from deployments.batches.wire import ENDED, WINDOW_S
from deployments.engines import Served
from deployments.ingress import create_app
from models.mock import MockEngine
from tests.deployments.serving import Probes, make_settings

CHAT = "/v1/chat/completions"
Lines = list[dict[str, Any]]


def a_line(id: str, url: str = CHAT, **body: Any) -> dict[str, Any]:
    """One request of a batch, by default of a chat."""
    given = {"model": "mock", **(body or {"messages": [{"role": "user", "content": f"Say {id}"}]})}
    return {"custom_id": id, "method": "POST", "url": url, "body": given}


def jsonl(lines: Iterable[Any]) -> bytes:
    return "".join(json.dumps(line) + "\n" for line in lines).encode()


def settings_of(folder: Path, *engines: Served, **given: Any) -> AppSettings:
    """Keywords of ``BatchSettings`` are told apart from those of the application."""
    own = {name: given.pop(name) for name in [*given] if name in BatchSettings.model_fields}
    return make_settings(*engines, batches={"folder": str(folder), **own}, **given)


class Client:
    """An official client, and what tests do with it over and over."""

    def __init__(self, app: Any, key: str) -> None:
        http = httpx2.AsyncClient(transport=httpx2.ASGITransport(app))
        self.api = openai.AsyncOpenAI(
            base_url="http://test/v1", api_key=key, http_client=http, max_retries=0
        )

    async def upload(self, data: bytes) -> FileObject:
        return await self.api.files.create(file=("input.jsonl", data), purpose="batch")

    async def start(self, data: bytes, endpoint: Any = CHAT, **more: Any) -> Batch:
        file = await self.upload(data)
        return await self.api.batches.create(
            input_file_id=file.id, endpoint=endpoint, completion_window="24h", **more
        )

    async def until_ended(self, batch: Batch) -> Batch:
        return await self.until(batch, *ENDED)

    async def until(self, batch: Batch, *statuses: str) -> Batch:
        return await self._until(batch, lambda seen: seen.status in statuses)

    async def until_answered(self, batch: Batch, lines: int) -> Batch:
        """So many lines at least."""
        return await self._until(batch, lambda seen: answered(seen) >= lines)

    async def _until(self, batch: Batch, condition: Callable[[Batch], bool]) -> Batch:
        for _ in range(2000):
            seen = await self.api.batches.retrieve(batch.id)
            if condition(seen):
                return seen
            await asyncio.sleep(0.005)
        raise AssertionError(f"it is still {seen}")

    async def run(self, lines: Iterable[Any], endpoint: Any = CHAT) -> Batch:
        return await self.until_ended(await self.start(jsonl(lines), endpoint))

    async def lines(self, file_id: str | None) -> Lines:
        """What a file holds; nothing if there is none."""
        if file_id is None:
            return []
        content = await self.api.files.content(file_id)
        return [json.loads(line) for line in content.text.splitlines()]


class Running:
    """The application, and the desk behind it."""

    def __init__(self, desk: LocalDesk, app: Any) -> None:
        self.desk = desk
        self.app = app

    def client(self, key: str = "none") -> Client:
        return Client(self.app, key)


@asynccontextmanager
async def running(
    folder: Path, *engines: Served, window_s: float = WINDOW_S, **given: Any
) -> AsyncGenerator[Running, None]:
    """One life of a server on this folder."""
    engines = engines or (MockEngine("mock"),)
    settings = settings_of(folder, *engines, **given)
    named = {one.name: one for one in engines}
    desk = await LocalDesk.open(named, settings, window_s)
    try:
        yield Running(desk, create_app(named, settings, Probes(), batches=desk))
        assert desk.failure is None
    finally:
        await desk.close()


def answered(batch: Batch) -> int:
    """How many lines were answered with success."""
    assert batch.request_counts is not None
    return batch.request_counts.completed


def files_in(folder: Path) -> list[str]:
    """The names of all that lies there of files."""
    return sorted(path.name for path in folder.rglob("file-*"))


def ids(lines: Lines) -> list[str]:
    return sorted(line["custom_id"] for line in lines)
