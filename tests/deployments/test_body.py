from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import NoReturn

import pytest
from starlette.requests import Request

from deployments.body import MOST_NESTED, parse_json, read_json
from deployments.openai.errors import ApiError
from tests.deployments.schemas import check
from tests.deployments.serving import CHAT, chat, client, make_app


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"{'a': 1}",
        b"[" * 100_000,
        b'{"a": NaN}',
        b'{"a": Infinity}',
        b'{"a": 1e999}',
        b'{"a": [-1e999]}',
        b'{"a": "\\ud800"}',
        b'{"a": "\\uDFFF"}',
        b'{"\\ud800": 1}',
        b'{"a": "\xed\xa0\x80"}',
        b'{"a": "\xff"}',
        '{"a": 1}'.encode("utf-16"),
        b'{"a": ' + b"9" * 5000 + b"}",
        b"[]",
        b'"text"',
        b"null",
        b"5",
    ],
)
def test_what_is_not_an_object_of_json_is_refused(body: bytes) -> None:
    with pytest.raises(ApiError) as caught:
        parse_json(body)
    assert caught.value.status == 400


def test_valid_bodies() -> None:
    assert parse_json(b'\xef\xbb\xbf{"a": "\xc3\xa9"}') == {"a": "é"}
    assert parse_json(b'{"a": 1e308, "b": 1e-999}') == {"a": 1e308, "b": 0.0}
    assert parse_json(b'{"a": "\\ud83d\\ude00"}') == {"a": "😀"}


async def test_a_bad_body_has_openais_form() -> None:
    async with client(make_app()) as http:
        answer = await http.post(CHAT, content=b"{")
    assert answer.status_code == 400
    check("ErrorResponse", answer.json())


async def test_the_content_type_does_not_matter() -> None:
    body = b'{"model": "mock", "messages": [{"role": "user", "content": "Hi"}]}'
    async with client(make_app()) as http:
        for kind in ("text/plain", "application/x-www-form-urlencoded"):
            answer = await http.post(CHAT, content=body, headers={"content-type": kind})
            assert answer.status_code == 200


async def _parts(count: int) -> AsyncIterator[bytes]:
    for _ in range(count):
        yield b" " * 100


async def test_a_body_too_large_is_refused() -> None:
    app = make_app(max_body_bytes=1000)
    async with client(app) as http:
        announced = await http.post(CHAT, content=b" " * 1001)
        counted = await http.post(CHAT, content=_parts(11))
        lying = await http.post(CHAT, content=_parts(11), headers={"content-length": "5"})
    for answer in (announced, counted, lying):
        assert answer.status_code == 413
        check("ErrorResponse", answer.json())
    assert (await chat(app)).status_code == 200


async def test_a_body_announced_too_large_is_not_even_read() -> None:
    async def receive() -> NoReturn:
        raise AssertionError("It was read.")

    scope = {"type": "http", "method": "POST", "headers": [(b"content-length", b"1001")]}
    with pytest.raises(ApiError) as caught:
        await read_json(Request(scope, receive), 1000, 60)
    assert caught.value.status == 413


async def _slowly() -> AsyncIterator[bytes]:
    yield b"{"
    await asyncio.sleep(60)
    yield b"}"


async def test_a_body_that_does_not_arrive_is_given_up() -> None:
    async with client(make_app(body_timeout_s=0.02)) as http:
        for path, check_error in ((CHAT, check), ("/tokenize", check), ("/v1/messages", None)):
            answer = await http.post(path, content=_slowly())
            assert answer.status_code == 408
            assert answer.headers["connection"] == "close"
            if check_error:
                check_error("ErrorResponse", answer.json())


def nested(levels: int) -> bytes:
    return b'{"a": ' + b"[" * (levels - 1) + b"]" * (levels - 1) + b"}"


def test_what_is_nested_too_deep_is_refused() -> None:
    parse_json(nested(MOST_NESTED))
    for levels in (MOST_NESTED + 1, 100_000):
        with pytest.raises(ApiError, match="nested more than 100 levels"):
            parse_json(nested(levels))


def test_a_number_of_more_digits_than_are_read_is_refused() -> None:
    parse_json(b'{"seed": -' + b"9" * 4299 + b"}")
    with pytest.raises(ApiError, match=r"the number 9{40}… of 4301 characters is too long$"):
        parse_json(b'{"seed": ' + b"9" * 4301 + b"}")
