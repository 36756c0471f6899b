"""What is around Serve's own servers."""

from __future__ import annotations

import httpx
import pytest
from ray.serve._private.http_util import (
    convert_object_to_asgi_messages,
    validate_http_proxy_callback_return,
)
from starlette.types import Receive, Scope, Send

from deployments.front import Front, layers
from tests.deployments.schemas import check
from tests.deployments.serving import make_app


class Serving:
    """As Serve refuses: with ``status`` and its words, or with silence where there is none."""

    def __init__(self, status: int | None) -> None:
        self._status = status

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        for _, value in scope["headers"]:
            value.decode()
        if self._status is not None:
            for message in convert_object_to_asgi_messages("in its words", self._status):
                await send(message)


def client(app: object) -> httpx.AsyncClient:
    return httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://test")  # type: ignore[arg-type]


def test_serve_takes_the_layers() -> None:
    (layer,) = validate_http_proxy_callback_return(layers())
    made: object = layer.cls
    assert made is Front


@pytest.mark.parametrize(("status", "told"), [(404, 503), (408, 408), (503, 503), (None, 500)])
async def test_what_serve_refuses_is_told_in_openais_form(status: int | None, told: int) -> None:
    async with client(Front(Serving(status))) as http:
        answer = await http.post("/v1/completions", headers={"x-request-id": "mine"})
    assert answer.status_code == told
    assert answer.headers["x-request-id"] == "mine"
    assert answer.headers.get("retry-after") == ("1" if told == 503 else None)
    check("ErrorResponse", answer.json())
    assert "in its words" not in answer.text


async def test_anthropics_clients_are_told_in_theirs() -> None:
    async with client(Front(Serving(404))) as http:
        answer = await http.post("/v1/messages")
    assert answer.status_code == 529
    assert answer.json()["error"]["type"] == "overloaded_error"


@pytest.mark.parametrize("status", [200, 503])
async def test_load_balancers_ask_serve_itself(status: int) -> None:
    async with client(Front(Serving(status))) as http:
        answer = await http.get("/-/healthz")
    assert (answer.status_code, answer.text) == (status, "in its words")


async def test_a_header_that_serve_cannot_read_is_the_callers_mistake() -> None:
    async with client(Front(Serving(200))) as http:
        answer = await http.get("/v1/models", headers={b"x-session-id": b"\xff"})
    assert answer.status_code == 400
    check("ErrorResponse", answer.json())
    assert answer.json()["error"]["message"] == "A header of the request is not UTF-8."


@pytest.mark.parametrize("path", ["/v1/models", "/v1/nothing", "/metrics", "/health"])
async def test_what_the_application_says_is_passed_on(path: str) -> None:
    app = make_app()
    async with client(app) as inside, client(Front(app)) as outside:
        said = [
            await http.get(path, headers={"x-request-id": "mine"}) for http in (inside, outside)
        ]
    assert said[0].status_code == said[1].status_code
    assert said[0].content == said[1].content
    assert said[0].headers == said[1].headers
