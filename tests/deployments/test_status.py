from __future__ import annotations

import asyncio
from collections.abc import Mapping

import pytest
from starlette.requests import Request

from deployments.door import Door
from deployments.openai.errors import ApiError
from deployments.probes import ModelState
from deployments.status import Status

REQUEST = Request({"type": "http", "headers": []})


class Silent:
    async def ready(self) -> Mapping[str, ModelState]:
        await asyncio.sleep(60)
        return {}

    async def metrics(self) -> str:
        await asyncio.sleep(60)
        return ""


class Empty:
    async def ready(self) -> Mapping[str, ModelState]:
        return {}

    async def metrics(self) -> str:
        return ""


async def test_probes_are_waited_for_only_so_long() -> None:
    status = Status(Silent(), Door(), timeout_s=0.01)
    assert (await status.ready(REQUEST)).status_code == 503
    with pytest.raises(ApiError) as caught:
        await status.metrics(REQUEST)
    assert caught.value.status == 504


async def test_no_models_are_not_ready() -> None:
    assert (await Status(Empty(), Door()).ready(REQUEST)).status_code == 503
