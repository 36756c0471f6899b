"""The routes of operators, ``/abort_requests`` and ``/reset_prefix_cache``, as vLLM names them."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from configs.settings import AppSettings
from deployments.body import read_json
from deployments.controls import Controls
from deployments.openai.call import validated
from deployments.openai.errors import ApiError

ABSENT = "This server has no `admin_keys_file`, without which nobody may do this."


class AbortBody(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    request_ids: list[str]


class Admin:
    """Without ``controls`` nobody may do anything: 404."""

    def __init__(self, controls: Controls | None, settings: AppSettings) -> None:
        self._controls = controls
        self._settings = settings

    async def abort(self, request: Request) -> Response:
        controls, settings = self._there(), self._settings
        data = await read_json(request, settings.max_body_bytes, settings.body_timeout_s)
        ids = frozenset(validated(AbortBody, data).request_ids)
        return JSONResponse({"aborted": await controls.abort(ids)})

    async def reset_prefix_cache(self, request: Request) -> Response:
        return JSONResponse({"kv_blocks": await self._there().reset_prefix_cache()})

    def _there(self) -> Controls:
        if self._controls is None:
            raise ApiError(404, ABSENT, code="not_found")
        return self._controls
