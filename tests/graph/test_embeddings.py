"""Vectors through the whole graph on a real Ray."""

from __future__ import annotations

import asyncio
import json
import struct
import time

import pytest

from deployments.remote_embedder import RemoteEmbedder
from models.embedding import EmbedRequest, InputTooLong
from models.errors import EngineError, Failed, Invalid
from models.request import TextPrompt
from tests.graph.asking import PATIENCE_S, measured, until_replaced
from tests.graph.conftest import RunningGraph

pytestmark = [pytest.mark.slow, pytest.mark.asyncio(loop_scope="session")]

JSON_TYPE = "content-type: application/json"
MANY = 1000


def ask(*texts: str, dimensions: int | None = None) -> EmbedRequest:
    return EmbedRequest(id="r", inputs=tuple(map(TextPrompt, texts)), dimensions=dimensions)


async def vectors(embedder: RemoteEmbedder, *texts: str) -> list[tuple[float, ...]]:
    return [struct.unpack("<4f", one) for one in (await embedder.embed(ask(*texts))).vectors]


async def test_texts_become_vectors_in_shared_batches(graph: RunningGraph) -> None:
    embedder = graph.embedder("vectors")
    assert await vectors(embedder, "abba", "c") == [(2, 2, 0, 0), (0, 0, 1, 0)]
    before = await measured(embedder)
    await asyncio.gather(*(vectors(embedder, f"a{number}") for number in range(40)))
    after = await measured(embedder)
    name = "stepserve_step_sequences"
    assert after[f"{name}_sum"] - before[f"{name}_sum"] == 40
    assert after[f"{name}_count"] - before[f"{name}_count"] < 20


async def test_what_is_wrong_crosses_the_hops_in_our_own_types(graph: RunningGraph) -> None:
    embedder = graph.embedder("vectors")
    with pytest.raises(InputTooLong, match=r"64 tokens, but 'input\[1\]' has 65"):
        await embedder.embed(ask("a", "b" * 65))
    with pytest.raises(Invalid, match="from 2 to 4"):
        await embedder.embed(ask("a", dimensions=1))


async def test_what_a_client_who_left_had_asked_for_is_not_computed(graph: RunningGraph) -> None:
    embedder = graph.embedder("vectors")
    before = await measured(embedder)
    body = json.dumps({"model": "vectors", "input": ["a"] * MANY}).encode() + b" " * 20_000
    length = f"content-length: {len(body)}"
    head = f"POST /v1/embeddings HTTP/1.1\r\nhost: x\r\n{JSON_TYPE}\r\n{length}\r\n\r\n"
    _, writer = await asyncio.open_connection("127.0.0.1", graph.port)
    writer.write(head.encode())
    await asyncio.sleep(0.1)  # a proxy that gets the body later may pass it on in another way
    writer.write(body)
    await asyncio.sleep(1.0)
    writer.close()
    deadline = time.monotonic() + PATIENCE_S
    while (seen := await measured(embedder))["stepserve_requests_running"]:
        assert time.monotonic() < deadline
        await asyncio.sleep(0.05)
    name = "stepserve_step_sequences_sum"
    assert 0 < seen[name] - before[name] < MANY
    reason = "stepserve_requests_finished_total/cancelled"
    assert seen[reason] == before[reason] + 1
    assert await vectors(embedder, "d") == [(0, 0, 0, 1)]


async def test_a_failed_batch_is_told_and_the_replica_is_replaced(graph: RunningGraph) -> None:
    embedder = graph.embedder("vectors")
    with pytest.raises(Failed, match="this token is cursed"):
        await embedder.embed(ask("!"))
    await until_replaced(embedder)
    for _ in range(20):
        try:
            assert await vectors(embedder, "a") == [(1, 0, 0, 0)]
            return
        except EngineError:
            await asyncio.sleep(0.5)
    raise AssertionError("It never got well.")
