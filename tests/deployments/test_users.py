"""For whom a request is, from its headers and body to the engine."""

from __future__ import annotations

import logging
import re
from typing import Any

import pytest

from deployments.openai.users import opaque
from models.embedding import Embedded, EmbedRequest
from models.mock import MockEngine
from models.request import User
from tests.deployments.serving import HELLO, Counting, make_app, post

CHAT = ("/v1/chat/completions", {"messages": HELLO})
TEXT = ("/v1/completions", {"prompt": ["one", "two"]})
RESPONSE = ("/v1/responses", {"input": "Hi"})
MESSAGE = ("/v1/messages", {"messages": HELLO, "max_tokens": 9})


class Noting(Counting):
    """An embedding model that notes for whom its requests are."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.users: list[User] = []

    async def embed(self, request: EmbedRequest) -> Embedded:
        self.users.append(request.user)
        return await super().embed(request)


async def users(path: str, body: dict[str, Any], **headers: str) -> set[User]:
    """Of the requests that an engine was given."""
    engine = MockEngine("mock")
    app = make_app(engine, api_keys=["one", "two"] if headers else [])
    answer = await post(app, path, {"model": "mock", **body}, **headers)
    assert answer.status_code == 200, answer.text
    return {request.user for request in engine.requests}


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(("path", "body"), [CHAT, TEXT, RESPONSE, MESSAGE])
async def test_a_request_is_its_keys(path: str, body: dict[str, Any], stream: bool) -> None:
    given = {**body, "stream": stream}
    assert await users(path, given, authorization="Bearer one") == {User(opaque("one"))}
    headers = {"x-api-key": "two", "authorization": "Bearer wrong"}
    assert await users(path, given, **headers) == {User(opaque("two"))}
    assert await users(path, given) == {User()}


@pytest.mark.parametrize(("path", "body"), [CHAT, TEXT, RESPONSE])
@pytest.mark.parametrize(
    "names",
    [{"safety_identifier": "ann"}, {"user": "ann"}, {"safety_identifier": "ann", "user": 1}],
)
async def test_whom_an_openai_client_names(
    path: str, body: dict[str, Any], names: dict[str, Any]
) -> None:
    ann = opaque("ann")
    assert await users(path, {**body, **names}) == {User("", ann)}
    found = await users(path, {**body, **names}, authorization="Bearer one")
    assert found == {User(opaque("one"), ann)}


@pytest.mark.parametrize("metadata", [{"user_id": None}, {}, None, "ann", ["ann"]])
async def test_anthropics_clients_may_name_nobody(metadata: Any) -> None:
    path, body = MESSAGE
    assert await users(path, {**body, "metadata": metadata}) == {User()}


async def test_whom_an_anthropic_client_names() -> None:
    path, body = MESSAGE
    assert await users(path, {**body, "metadata": {"user_id": "ann"}}) == {User("", opaque("ann"))}


@pytest.mark.parametrize("names", [{}, {"user": "ann"}, {"safety_identifier": "ann"}])
async def test_for_whom_inputs_are_embedded(names: dict[str, Any]) -> None:
    engine = Noting("counting")
    body = {"model": "counting", "input": ["a", "b"], **names}
    app = make_app(engine, api_keys=["one"])
    answer = await post(app, "/v1/embeddings", body, authorization="Bearer one")
    assert answer.status_code == 200
    assert engine.users == [User(opaque("one"), opaque("ann") if names else "")]


async def test_a_key_of_an_open_server_is_nobodys() -> None:
    engine = MockEngine("mock")
    path, body = CHAT
    headers = {"authorization": "Bearer anything"}
    await post(make_app(engine), path, {"model": "mock", **body}, **headers)
    assert engine.requests[0].user == User()


async def test_the_log_tells_neither_key_nor_user(caplog: pytest.LogCaptureFixture) -> None:
    path, body = CHAT
    with caplog.at_level(logging.DEBUG):
        await users(path, {**body, "user": "ann"}, authorization="Bearer one")
    assert "status=200" in caplog.text
    for told in ("one", opaque("one"), opaque("ann")):
        assert not re.search(rf"\b{told}\b", caplog.text)
