"""``/v1/files`` and ``/v1/batches`` over a desk, which may be missing."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse

from configs.settings import AppSettings
from deployments.access import access_of
from deployments.batches.bodies import batch_wish, limit_of, order_of
from deployments.batches.desk import Desk
from deployments.batches.wire import MIB, Shown
from deployments.body import read_logged_json
from deployments.openai.errors import ApiError, server_error
from deployments.upload import Uploads

MOST_FILES, MOST_BATCHES, SOME_BATCHES = 10_000, 100, 20  # of a page
CHUNK = MIB


class Files:
    """The endpoints of files. An owner is told of no others'."""

    def __init__(self, desk: Desk | None, settings: AppSettings) -> None:
        self._desk = desk
        most = settings.batches.max_file_mib if settings.batches else 0
        self._uploads = Uploads(int(most * MIB), settings.body_timeout_s)

    async def create(self, request: Request) -> Response:
        return JSONResponse(await self._uploads.take(request, there(self._desk)))

    async def list(self, request: Request) -> Response:
        desk, query = there(self._desk), request.query_params
        order, limit = order_of(query), limit_of(query, MOST_FILES, MOST_FILES)
        purpose, after = query.get("purpose"), query.get("after")
        return JSONResponse(await desk.files(_owner(request), purpose, order, after, limit))

    async def retrieve(self, request: Request) -> Response:
        return JSONResponse(await self._find(request))

    async def content(self, request: Request) -> Response:
        size = (await self._find(request))["bytes"]
        return StreamingResponse(
            self._read(_owner(request), request.path_params["id"], size),
            headers={"content-length": str(size)},
            media_type="application/octet-stream",
        )

    async def delete(self, request: Request) -> Response:
        id = request.path_params["id"]
        if not await there(self._desk).delete_file(_owner(request), id):
            raise _no_file(id)
        return JSONResponse({"id": id, "object": "file", "deleted": True})

    async def _find(self, request: Request) -> Shown:
        id = request.path_params["id"]
        file = await there(self._desk).file(_owner(request), id)
        if file is None:
            raise _no_file(id)
        return file

    async def _read(self, owner: str, id: str, size: int) -> AsyncGenerator[bytes, None]:
        desk, offset = there(self._desk), 0
        while offset < size:
            data = await desk.read_file(owner, id, offset, CHUNK)
            if not data:
                raise server_error(500, "The file was deleted while it was read.")
            yield data
            offset += len(data)


class Batches:
    """The endpoints of batches."""

    def __init__(self, desk: Desk | None, settings: AppSettings) -> None:
        self._desk = desk
        self._settings = settings

    async def create(self, request: Request) -> Response:
        desk = there(self._desk)
        wish = batch_wish(await read_logged_json(request, self._settings), _owner(request))
        return JSONResponse(await desk.create_batch(wish))

    async def list(self, request: Request) -> Response:
        desk, query = there(self._desk), request.query_params
        limit = limit_of(query, SOME_BATCHES, MOST_BATCHES)
        return JSONResponse(await desk.batches(_owner(request), query.get("after"), limit))

    async def retrieve(self, request: Request) -> Response:
        return _found(await there(self._desk).batch(*_which(request)), request)

    async def cancel(self, request: Request) -> Response:
        return _found(await there(self._desk).cancel_batch(*_which(request)), request)


def there(desk: Desk | None) -> Desk:
    """The desk; raises ``ApiError`` if the server has none."""
    if desk is None:
        message = "Files and batches are off: the configuration of this server has no 'batches'."
        raise ApiError(404, message, code="batches_off")
    return desk


def _found(batch: Shown | None, request: Request) -> Response:
    if batch is None:
        message = f"No batch found with id '{request.path_params['id']}'."
        raise ApiError(404, message, param="batch_id")
    return JSONResponse(batch)


def _which(request: Request) -> tuple[str, Any]:
    return _owner(request), request.path_params["id"]


def _owner(request: Request) -> str:
    return access_of(request.scope).key


def _no_file(id: str) -> ApiError:
    return ApiError(404, f"No such File object: {id}", param="id")
