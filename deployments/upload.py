"""A file that a client sends in a form, to a desk: bounded in bytes, in time and in number."""

from __future__ import annotations

import asyncio

from starlette.datastructures import UploadFile
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.types import Message, Receive

from deployments.access import access_of
from deployments.batches.bodies import file_wish, upload_of
from deployments.batches.desk import Desk
from deployments.batches.wire import MIB, Shown
from deployments.body import too_large, too_slow
from deployments.openai.errors import invalid

CHUNK = MIB
MOST_FIELDS = 8
OTHERS = 64 * 1024  # bytes of a form beside its file
AT_ONCE = 4  # uploads that an ingress takes: each is on its disk until it is whole


class Uploads:
    """Takes the forms of all clients of one ingress. A body may be silent for ``silence_s``."""

    def __init__(self, max_bytes: int, silence_s: float) -> None:
        self._max_bytes = max_bytes
        self._silence_s = silence_s
        self._turns = asyncio.Semaphore(AT_ONCE)

    async def take(self, request: Request, desk: Desk) -> Shown:
        """The file that it became; raises ``ApiError`` or ``EngineError``."""
        length = request.headers.get("content-length", "")
        if length.isdecimal() and int(length[:19]) > self._max_bytes + OTHERS:
            raise too_large(self._max_bytes)
        if not request.headers.get("content-type", "").startswith("multipart/form-data"):
            raise invalid("The file must be sent as 'multipart/form-data'.")
        async with self._turns:
            return await self._taken(request, desk)

    async def _taken(self, request: Request, desk: Desk) -> Shown:
        bounded = Request(request.scope, self._bounded(request.receive))
        try:
            async with bounded.form(max_files=1, max_fields=MOST_FIELDS) as form:
                wish = file_wish(form, access_of(request.scope).key)
                upload = await desk.begin_upload()
                try:
                    await self._send(upload_of(form), upload, desk)
                    return await desk.keep_upload(upload, wish)
                finally:
                    await desk.drop_upload(upload)
        except HTTPException as error:  # the parser's, of a form that is none
            raise invalid(f"We could not parse the form of your request: {error.detail}") from None

    async def _send(self, file: UploadFile, upload: str, desk: Desk) -> None:
        offset = 0
        while data := await file.read(CHUNK):
            if offset + len(data) > self._max_bytes:
                raise too_large(self._max_bytes)
            await desk.write_upload(upload, offset, data)
            offset += len(data)
        if not offset:
            raise invalid("The file is empty.", "file", "empty_file")

    def _bounded(self, receive: Receive) -> Receive:
        received = 0

        async def bounded() -> Message:
            nonlocal received
            try:
                async with asyncio.timeout(self._silence_s):
                    message = await receive()
            except TimeoutError:
                raise too_slow(self._silence_s) from None
            received += len(message.get("body", b""))
            if received > self._max_bytes + OTHERS:
                raise too_large(self._max_bytes)
            return message

        return bounded
