"""Whether the models are ready, and their metrics: what operators ask."""

from __future__ import annotations

import asyncio
from typing import Any

from prometheus_client import CONTENT_TYPE_PLAIN_0_0_4
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from deployments.openai.errors import timed_out
from deployments.probes import ModelState, Probes

PROBE_TIMEOUT_S = 5.0


class Status:
    """``/ready`` and ``/metrics``. A probe that does not answer in time is an answer too."""

    def __init__(self, probes: Probes, timeout_s: float = PROBE_TIMEOUT_S) -> None:
        self._probes = probes
        self._timeout_s = timeout_s

    async def ready(self, request: Request) -> Response:
        """200 if every model makes progress, else 503."""
        try:
            async with asyncio.timeout(self._timeout_s):
                states = await self._probes.ready()
        except TimeoutError:
            reason = f"no answer within {self._timeout_s:g} seconds"
            return JSONResponse({"status": "not ready", "reason": reason, "models": {}}, 503)
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


def _describe(state: ModelState) -> dict[str, Any]:
    return {"status": state.problem or "ready", "description": dict(state.description)}
