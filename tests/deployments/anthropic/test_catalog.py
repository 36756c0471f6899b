"""The models as Anthropic's clients are told of them."""

from __future__ import annotations

from typing import Any

import anthropic
import httpx
import httpx2
import pytest
from starlette.applications import Starlette

from models.mock import MockEngine
from tests.deployments.serving import client, make_app

NAMES = ["a", "b", "org/c"]


def app_of(*names: str, **settings: Any) -> Starlette:
    return make_app(*(MockEngine(name) for name in names or NAMES), **settings)


async def get(app: Starlette, path: str = "", **headers: str) -> httpx.Response:
    async with client(app) as http:
        told = {"anthropic-version": "2023-06-01", **headers}
        return await http.get(f"/v1/models{path}", headers=told)


async def test_a_model() -> None:
    told = (await get(app_of(), "/org/c")).json()
    assert told.pop("created_at").endswith("Z")
    assert told == {
        "type": "model",
        "id": "org/c",
        "display_name": "org/c",
        "lifecycle": "active",
        "max_input_tokens": 4096,
        "max_tokens": 4096,
    }


@pytest.mark.parametrize(
    ("query", "ids", "more"),
    [
        ("", NAMES, False),
        ("?limit=2", ["a", "b"], True),
        ("?limit=2&after_id=b", ["org/c"], False),
        ("?limit=1&after_id=a", ["b"], True),
        ("?limit=1&before_id=org/c", ["b"], True),
        ("?before_id=b", ["a"], False),
        ("?before_id=a", [], False),
    ],
)
async def test_pages(query: str, ids: list[str], more: bool) -> None:
    page = (await get(app_of(), query)).json()
    assert ([model["id"] for model in page["data"]], page["has_more"]) == (ids, more)
    ends = (ids[0], ids[-1]) if ids else (None, None)
    assert (page["first_id"], page["last_id"]) == ends


@pytest.mark.parametrize("query", ["?limit=0", "?limit=x", "?after_id=x", "?before_id=x"])
async def test_wrong_pages(query: str) -> None:
    answer = await get(app_of(), query)
    assert (answer.status_code, answer.json()["type"]) == (400, "error")


async def test_errors_have_its_form() -> None:
    assert (await get(app_of(), "/other")).json()["error"]["type"] == "not_found_error"
    refused = await get(app_of(api_keys=["one"]))
    assert (refused.status_code, refused.json()["error"]["type"]) == (401, "authentication_error")
    assert (await get(app_of(api_keys=["one"]), **{"x-api-key": "one"})).status_code == 200


async def test_others_are_told_as_before() -> None:
    async with client(app_of("a")) as http:
        listed = (await http.get("/v1/models?limit=0")).json()
    assert (listed["object"], listed["data"][0]["object"]) == ("list", "model")


async def test_the_official_client_lists_them() -> None:
    http = httpx2.AsyncClient(transport=httpx2.ASGITransport(app_of()))
    asking = anthropic.AsyncAnthropic(base_url="http://test", api_key="x", http_client=http)
    assert [model.display_name async for model in asking.models.list(limit=2)] == NAMES
    assert (await asking.models.retrieve("a")).created_at.year > 2025
