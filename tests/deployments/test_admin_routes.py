"""What operators may do, and that nobody else may."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import httpx
import pytest
from starlette.applications import Starlette

from deployments.controls import GraphControls
from deployments.door import ABORTED, Door
from deployments.ingress import create_app
from models.errors import Busy
from models.mock import MockEngine
from models.schedule.blocks import BlockPool
from tests.deployments.schemas import check
from tests.deployments.serving import (
    Probes,
    chat,
    client,
    complete,
    events,
    eventually,
    make_settings,
    post,
)
from tests.models.schedule.pooled import computed

KEY = {"authorization": "Bearer operator"}


class Replicas:
    """Of an Ingress by their doors, of a model by their pools; None is one that is late."""

    def __init__(self, *parts: Door | BlockPool | None) -> None:
        self._parts = parts

    async def ask_replicas(self, method: str, *args: Any, timeout_s: float) -> list[Any]:
        return [_told(part, *args) for part in self._parts]


def _told(part: Door | BlockPool | None, *args: Any) -> list[int] | None:
    match part:
        case Door():
            return [part.abort(*args)]
        case BlockPool():
            return [part.forget()]
    return None


@pytest.fixture
def keys(tmp_path: Path) -> str:
    file = tmp_path / "keys"
    file.write_text("operator\n")
    return str(file)


def app_of(
    keys: str | None, engine: MockEngine, door: Door, *others: Door, **more: Any
) -> Starlette:
    settings = make_settings(engine, admin_keys_file=keys, **more)
    controls = GraphControls(Replicas(*others, door), {"mock": Replicas(filled(), filled())})
    return create_app({"mock": engine}, settings, Probes(), door=door, controls=controls)


def filled() -> BlockPool:
    pool = BlockPool(8, 4)
    pool.release(computed(pool, range(9)))
    return pool


async def abort(app: Starlette, *ids: str) -> httpx.Response:
    return await post(app, "/abort_requests", {"request_ids": ids}, **KEY)


@pytest.mark.parametrize("path", ["/abort_requests", "/reset_prefix_cache"])
async def test_only_operators_may(path: str, keys: str) -> None:
    engine = MockEngine("mock")
    app = app_of(keys, engine, Door(), api_keys=["client"])
    for headers in ({}, {"authorization": "Bearer client"}):
        answer = await post(app, path, {"request_ids": []}, **headers)
        assert answer.status_code == 401
        check("ErrorResponse", answer.json())
    assert (await post(app, path, {"request_ids": []}, **KEY)).status_code == 200
    assert (await chat(app)).status_code == 401
    async with client(app) as http:
        refused = await http.get("/v1/models", headers=KEY)
    assert refused.status_code == 401


@pytest.mark.parametrize("path", ["/abort_requests", "/reset_prefix_cache"])
async def test_without_a_key_of_theirs_nobody_may(path: str) -> None:
    answer = await post(app_of(None, MockEngine("mock"), Door()), path, {"request_ids": []})
    assert answer.status_code == 404


async def test_what_runs_ends_with_an_error_and_frees_its_engine(keys: str) -> None:
    engine, door = MockEngine("mock", inter_token_s=60), Door()
    app = app_of(keys, engine, door)
    headers = {"x-request-id": "mine"}
    body = {"model": "mock", "prompt": "a", "n": 3}
    asked = asyncio.create_task(post(app, "/v1/completions", body, **headers))
    other = asyncio.create_task(complete(app))
    await eventually(lambda: engine.live == 2)
    assert (await abort(app, "mine", "unknown")).json() == {"aborted": 1}
    answer = await asked
    assert answer.status_code == 409
    assert answer.json() == ABORTED.body
    assert answer.headers["x-should-retry"] == "false"
    await eventually(lambda: engine.live == 1)
    assert (await abort(app, "mine")).json() == {"aborted": 0}
    other.cancel()


async def test_a_stream_ends_with_an_event_that_tells(keys: str) -> None:
    engine, door = MockEngine("mock", inter_token_s=0.2), Door()
    app = app_of(keys, engine, door)
    asked = asyncio.create_task(chat(app, stream=True, request_id="by its body", max_tokens=200))
    await eventually(lambda: engine.live)
    await asyncio.sleep(0.3)
    assert (await abort(app, "by its body")).json() == {"aborted": 1}
    answer = await asked
    assert answer.status_code == 200
    assert events(answer.text)[-1] == ABORTED.body
    assert not engine.live


@pytest.mark.parametrize("key", ["request_id", "rid"])
@pytest.mark.parametrize(
    ("path", "asked"),
    [("/v1/completions", {"prompt": "a"}), ("/v1/responses", {"input": "a"})],
)
async def test_bodies_name_their_request(
    path: str, asked: dict[str, Any], key: str, keys: str
) -> None:
    engine, door = MockEngine("mock", inter_token_s=60), Door()
    app = app_of(keys, engine, door)
    answer = asyncio.create_task(post(app, path, {"model": "mock", key: "mine", **asked}))
    await eventually(lambda: engine.live)
    assert (await abort(app, "mine")).json() == {"aborted": 1}
    assert (await answer).status_code == 409
    wrong = await post(app, path, {"model": "mock", key: 1, **asked})
    assert (wrong.status_code, wrong.json()["error"]["param"]) == (400, key)


async def test_anthropics_clients_are_told_in_their_form(keys: str) -> None:
    engine = MockEngine("mock", inter_token_s=60)
    app = app_of(keys, engine, Door())
    messages = [{"role": "user", "content": "x"}]
    body = {"model": "mock", "max_tokens": 9, "messages": messages}
    asked = asyncio.create_task(post(app, "/v1/messages", body, **{"x-request-id": "mine"}))
    await eventually(lambda: engine.live)
    await abort(app, "mine")
    answer = await asked
    assert (answer.status_code, answer.json()["type"]) == (409, "error")


async def test_all_replicas_are_told_and_all_requests_of_an_id_end(keys: str) -> None:
    engine, doors = MockEngine("mock", inter_token_s=60), [Door(), Door()]
    apps = [app_of(keys, engine, doors[0], doors[1]), app_of(keys, engine, doors[1])]
    asked = [asyncio.create_task(chat(app, rid="conversation")) for app in (*apps, apps[1])]
    await eventually(lambda: engine.live == 3)
    assert (await abort(apps[0], "conversation")).json() == {"aborted": 3}
    assert [(await one).status_code for one in asked] == [409] * 3


async def test_a_request_can_be_ended_while_the_server_stops(keys: str) -> None:
    engine, door = MockEngine("mock", inter_token_s=60), Door()
    app = app_of(keys, engine, door)
    asked = asyncio.create_task(chat(app, rid="last"))
    await eventually(lambda: engine.live)
    closing = asyncio.create_task(door.close())
    await eventually(lambda: door.closed)
    assert (await abort(app, "last")).json() == {"aborted": 1}
    await asyncio.wait_for(closing, 5)
    assert (await asked).status_code == 409


async def test_a_client_that_leaves_is_not_counted(keys: str) -> None:
    engine, door = MockEngine("mock", inter_token_s=60), Door()
    app = app_of(keys, engine, door)
    asked = asyncio.create_task(chat(app, rid="gone"))
    await eventually(lambda: engine.live)
    asked.cancel()
    await asyncio.wait([asked])
    assert asked.cancelled()
    assert (await abort(app, "gone")).json() == {"aborted": 0}


async def test_what_caches_held_is_told_by_model(keys: str) -> None:
    app = app_of(keys, MockEngine("mock"), Door())
    for blocks in (4, 0):
        answer = await post(app, "/reset_prefix_cache", {}, **KEY)
        assert answer.json() == {"kv_blocks": {"mock": blocks}}


async def test_a_replica_that_does_not_answer_is_no_success(keys: str) -> None:
    controls = GraphControls(Replicas(Door(), None), {"mock": Replicas(filled(), None)})
    with pytest.raises(Busy):
        await controls.abort(frozenset({"x"}))
    with pytest.raises(Busy):
        await controls.reset_prefix_cache()
    with pytest.raises(Busy):
        await GraphControls(Replicas(), {}).abort(frozenset({"x"}))


@pytest.mark.parametrize("body", [{}, {"request_ids": "x"}, {"request_ids": [1]}, {"all": True}])
async def test_a_wrong_body_is_refused(body: Any, keys: str) -> None:
    answer = await post(app_of(keys, MockEngine("mock"), Door()), "/abort_requests", body, **KEY)
    assert answer.status_code == 400
    assert answer.json()["error"]["param"]
