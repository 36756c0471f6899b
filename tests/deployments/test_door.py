from __future__ import annotations

import asyncio

from starlette.applications import Starlette

from deployments.door import STOPPING, Door
from deployments.ingress import create_app
from models.mock import MockEngine
from tests.deployments.schemas import check
from tests.deployments.serving import Probes, client, complete, eventually, make_settings, post


def app_behind(door: Door, engine: MockEngine) -> Starlette:
    return create_app({engine.name: engine}, make_settings(engine), Probes(), door=door)


async def test_running_answers_become_whole_while_new_requests_are_refused() -> None:
    door, engine = Door(), MockEngine("mock", inter_token_s=0.01)
    app = app_behind(door, engine)
    running = asyncio.create_task(complete(app, max_tokens=30, ignore_eos=True))
    await eventually(lambda: engine.live)
    closing = asyncio.create_task(door.close())
    await eventually(lambda: door.closed)
    refused = await complete(app)
    assert not closing.done()
    assert (await running).json()["usage"]["completion_tokens"] == 30
    await asyncio.wait_for(closing, 5)
    assert refused.status_code == 503
    assert refused.headers["retry-after"] == "1"
    check("ErrorResponse", refused.json())
    assert refused.json()["error"]["message"] == STOPPING


async def test_a_client_that_leaves_is_not_waited_for() -> None:
    door, engine = Door(), MockEngine("mock", inter_token_s=60)
    running = asyncio.create_task(complete(app_behind(door, engine)))
    await eventually(lambda: engine.live)
    running.cancel()
    await asyncio.wait_for(door.close(), 5)


async def test_operators_are_answered_until_the_end() -> None:
    door = Door()
    app = app_behind(door, MockEngine("mock"))
    await door.close()
    async with client(app) as http:
        ready, health, metrics = [
            await http.get(path) for path in ("/ready", "/health", "/metrics")
        ]
    assert ready.status_code == 503
    assert ready.json() == {"status": "not ready", "reason": STOPPING, "models": {}}
    assert (health.status_code, metrics.status_code) == (200, 200)


async def test_anthropics_clients_are_refused_in_their_form() -> None:
    door = Door()
    await door.close()
    answer = await post(app_behind(door, MockEngine("mock")), "/v1/messages", {})
    assert answer.status_code == 529
    assert answer.json()["error"] == {"type": "overloaded_error", "message": STOPPING}
