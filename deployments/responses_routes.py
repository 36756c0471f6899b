"""``/v1/responses`` over any engine and a store of answers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from uuid import uuid4

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.types import Receive, Scope, Send

from configs.settings import AppSettings
from deployments.access import access_of
from deployments.body import read_logged_json
from deployments.engines import Served
from deployments.openai.call import Call
from deployments.openai.errors import engine_error, invalid
from deployments.openai.parameters import unsupported
from deployments.openai.tokenization import TokenizeCall, count_answer
from deployments.responses.items import Item
from deployments.responses.kept import Kept
from deployments.responses.record import Record, not_found, previous_not_found
from deployments.responses.references import resolved
from deployments.responses.request import ResponseCall, make_call, parse_body, shortened
from deployments.responses.response import ResponseTranscript
from deployments.tokenization import Tokenization
from deployments.transcript import Telling
from models.errors import EngineError, TooLong


class CreateResponse:
    """The ASGI endpoint that answers with a response."""

    def __init__(self, engines: Mapping[str, Served], settings: AppSettings, kept: Kept) -> None:
        self._engines = engines
        self._settings = settings
        self._kept = kept

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        access = access_of(scope)
        unique = uuid4().hex
        request = Request(scope, receive)
        made = await parse(
            request, self._settings, self._kept, f"{access.request_id}-{unique[:12]}"
        )
        if made.body.store and not self._kept.open:
            raise unsupported("store")
        transcript = ResponseTranscript(
            unique, made, self._kept.open and made.body.store is not False
        )
        telling = Telling(
            made.call,
            transcript,
            self._settings.request_timeout_s,
            self._settings.keep_alive_s,
            lambda: self._kept.keep(made, transcript),
            Shortening(made).shorter,
        )
        await telling.answer(self._engines, scope, receive, send)


class Shortening:
    """Of a conversation that is too long, the beginning goes, more of it each time it is asked."""

    def __init__(self, made: ResponseCall) -> None:
        self._made = made

    def shorter(self, error: TooLong) -> Call | None:
        made = shortened(self._made, error)
        if made is None:
            return None
        self._made = made
        return made.call


class KeptResponses:
    """The endpoints about answers that were given."""

    def __init__(self, kept: Kept) -> None:
        self._kept = kept

    async def retrieve(self, request: Request) -> Response:
        if request.query_params.get("stream", "false") != "false":
            raise unsupported("stream")
        return JSONResponse((await self._find(request)).response)

    async def input_items(self, request: Request) -> Response:
        """In pages: newest first unless ``order=asc``."""
        items = list((await self._find(request)).items)
        return JSONResponse(_page(items, request))

    async def delete(self, request: Request) -> Response:
        id = request.path_params["id"]
        if not await self._kept.delete(id):
            raise not_found(id)
        return JSONResponse({"id": id, "object": "response", "deleted": True})

    async def cancel(self, request: Request) -> Response:
        await self._find(request)
        raise invalid("Cannot cancel a synchronous response.")

    async def _find(self, request: Request) -> Record:
        id = request.path_params["id"]
        record = await self._kept.find(id)
        if record is None:
            raise not_found(id)
        return record


class ResponseTokens:
    """The endpoint that counts an input's tokens."""

    def __init__(self, tokens: Tokenization, settings: AppSettings, kept: Kept) -> None:
        self._tokens = tokens
        self._settings = settings
        self._kept = kept

    async def count(self, request: Request) -> Response:
        made = await parse(request, self._settings, self._kept, "count")
        call = TokenizeCall(made.body.model, made.call.requests[0].prompt, False)
        return JSONResponse(count_answer(await self._tokens.count(request, call)))


async def parse(request: Request, settings: AppSettings, kept: Kept, id: str) -> ResponseCall:
    """Raises ``ApiError``."""
    body = parse_body(await read_logged_json(request, settings))
    history: Sequence[Item] = ()
    if body.previous_response_id is not None:
        previous = await kept.find(body.previous_response_id)
        if previous is None:
            raise previous_not_found(body.previous_response_id)
        history = previous.conversation
    body.input = await resolved(body.input, history, kept)
    try:
        return make_call(body, history, id)
    except EngineError as error:
        raise engine_error(error, "input") from error


def _page(items: list[Item], request: Request) -> dict[str, object]:
    query = request.query_params
    if query.get("order", "desc") not in ("asc", "desc"):
        raise invalid("'order' must be 'asc' or 'desc'.", "order")
    if query.get("order") != "asc":
        items = items[::-1]
    ids = [item["id"] for item in items]
    after = query.get("after")
    if after is not None and after not in ids:
        raise invalid(f"No item with id '{after}' found.", "after")
    limit = query.get("limit", "20")
    if not limit.isascii() or not limit.isdecimal() or not 1 <= int(limit[:4]) <= 100:
        raise invalid("'limit' must be at least 1 and at most 100.", "limit")
    first = 0 if after is None else ids.index(after) + 1
    page = items[first : first + int(limit[:4])]
    return {
        "object": "list",
        "data": page,
        "first_id": page[0]["id"] if page else None,
        "last_id": page[-1]["id"] if page else None,
        "has_more": first + len(page) < len(items),
    }
