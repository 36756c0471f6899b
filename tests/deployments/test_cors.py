from __future__ import annotations

import httpx
import pytest
from pydantic import ValidationError
from starlette.applications import Starlette

from tests.deployments.serving import CHAT, Exchange, chat, client, make_app, post

PAGE = "https://chat.example"
HELLO = {"model": "mock", "stream": True, "messages": [{"role": "user", "content": "Hi"}]}


async def preflight(app: Starlette, origin: str = PAGE) -> httpx.Response:
    headers = {
        "origin": origin,
        "access-control-request-method": "POST",
        "access-control-request-headers": "authorization, content-type, x-stainless-os",
    }
    async with client(app) as http:
        return await http.options(CHAT, headers=headers)


async def test_it_is_off_unless_asked_for() -> None:
    app = make_app()
    assert (await preflight(app)).status_code == 405
    answer = await post(app, CHAT, {**HELLO, "stream": False}, origin=PAGE)
    assert not [name for name in answer.headers if name.startswith("access-control")]


@pytest.mark.parametrize("origins", [[PAGE], ["*"], ["http://other", PAGE]])
async def test_a_page_may_ask_first(origins: list[str]) -> None:
    answer = await preflight(make_app(cors_origins=origins, api_keys=["one"]))
    assert answer.status_code == 200
    assert answer.headers["access-control-allow-origin"] in (PAGE, "*")
    assert "POST" in answer.headers["access-control-allow-methods"]
    assert "x-stainless-os" in answer.headers["access-control-allow-headers"]
    assert "access-control-allow-credentials" not in answer.headers


async def test_another_page_may_not() -> None:
    answer = await preflight(make_app(cors_origins=[PAGE]), "https://elsewhere.example")
    assert answer.status_code == 400
    assert "access-control-allow-origin" not in answer.headers


async def test_answers_and_errors_may_be_read() -> None:
    app = make_app(cors_origins=[PAGE], api_keys=["one"])
    for headers, status in (({"authorization": "Bearer one"}, 200), ({}, 401)):
        answer = await post(app, CHAT, {**HELLO, "stream": False}, origin=PAGE, **headers)
        assert answer.status_code == status
        assert answer.headers["access-control-allow-origin"] == PAGE
        assert "x-request-id" in answer.headers["access-control-expose-headers"]


async def test_a_stream_still_goes_write_by_write() -> None:
    exchange = Exchange(make_app(cors_origins=["*"]), CHAT, HELLO, reads=2)
    assert (await exchange.next())["type"] == "http.response.start"
    assert b'"role":"assistant"' in (await exchange.next())["body"]
    assert exchange.unread == 0
    await exchange.leave()


async def test_without_an_origin_nothing_changes() -> None:
    assert (await chat(make_app(cors_origins=[PAGE]))).status_code == 200


@pytest.mark.parametrize("origin", ["https://a.example/", "a.example", "", "https://a b"])
def test_what_is_no_origin_is_refused(origin: str) -> None:
    with pytest.raises(ValidationError, match="cors_origins"):
        make_app(cors_origins=[origin])
