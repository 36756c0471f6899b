"""Whether the models are ready, and their metrics: what operators ask."""

from __future__ import annotations

import asyncio
from typing import Any

from prometheus_client import CONTENT_TYPE_PLAIN_0_0_4
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from deployments.door import STOPPING, Door
from deployments.openai.errors import timed_out
from deployments.probes import ModelState, Probes

PROBE_TIMEOUT_S = 5.0


class Status:
    """``/ready`` and ``/metrics``. A probe that does not answer in time is an answer too."""

    def __init__(self, probes: Probes, door: Door, timeout_s: float = PROBE_TIMEOUT_S) -> None:
        self._probes = probes
        self._door = door
        self._timeout_s = timeout_s

    async def ready(self, request: Request) -> Response:
        """200 if every model makes progress and more requests are let in, else 503."""
        if self._door.closed:
            return _not_ready(STOPPING)
        try:
            async with asyncio.timeout(self._timeout_s):
                states = await self._probes.ready()
        except TimeoutError:
            return _not_ready(f"no answer within {self._timeout_s:g} seconds")
        ready = bool(states) and not any(state.problem for state in states.values())
        models = {name: _describe(state) for name, state in states.items()}
        status = "ready" if ready else "not ready"
        return JSONResponse({"status": status, "models": models}, 200 if ready else 503)

    async def metrics(self, request: Request) -> Response:
        """Prometheus text."""
        try:
            async with asyncio.timeout(self._timeout_s):
                text = await self._probes.metrics()
        except TimeoutError:
            raise timed_out(self._timeout_s) from None
        return Response(text, media_type=CONTENT_TYPE_PLAIN_0_0_4)


def _not_ready(reason: str) -> Response:
    return JSONResponse({"status": "not ready", "reason": reason, "models": {}}, 503)


def _describe(state: ModelState) -> dict[str, Any]:
    return {"status": state.problem or "ready", "description": dict(state.description)}
