"""Adapters as clients see them: models of their own, over their model's engine."""

from __future__ import annotations

from typing import Any

import pytest
from starlette.applications import Starlette

from configs.settings import AdapterSettings, AppSettings, ModelSettings
from deployments.adapted import Adapted
from deployments.app import parents
from deployments.engines import Served
from deployments.graph import Graph
from deployments.ingress import create_app
from tests.deployments.serving import CHAT, HELLO, Probes, TokenizingMock, client, post

SETTINGS = AppSettings(
    models=[
        ModelSettings(
            name="base", source="org/base", adapters=[AdapterSettings(name="sql", source="org/sql")]
        )
    ]
)


def served() -> tuple[Starlette, TokenizingMock]:
    base = TokenizingMock("base", text="Hello.")
    engines: dict[str, Served] = {"base": base, "sql": Adapted("sql", base, "org/sql")}
    return create_app(engines, SETTINGS, Probes()), base


@pytest.mark.parametrize(
    ("path", "body"),
    [
        (CHAT, {"messages": HELLO}),
        ("/v1/completions", {"prompt": "Once"}),
        ("/v1/responses", {"input": "Hello"}),
        ("/v1/messages", {"messages": HELLO, "max_tokens": 5}),
    ],
)
async def test_requests_name_it_as_their_model(path: str, body: dict[str, Any]) -> None:
    app, base = served()
    for name, adapter in (("sql", "sql"), ("base", None)):
        answer = await post(app, path, {"model": name, **body})
        assert (answer.status_code, answer.json()["model"]) == (200, name)
        assert base.requests[-1].adapter == adapter


async def test_it_is_listed_with_its_parent() -> None:
    app, _ = served()
    async with client(app) as http:
        listed = (await http.get("/v1/models")).json()["data"]
        one = (await http.get("/v1/models/sql")).json()
    found = [(model["id"], model["root"], model["parent"]) for model in listed]
    assert found == [("base", "base", None), ("sql", "org/sql", "base")]
    assert one == listed[1]


async def test_it_has_its_models_tokenizer() -> None:
    app, _ = served()
    for named in ({"model": "sql"}, {}):
        answer = await post(app, "/tokenize", {"prompt": "abc", **named})
        assert answer.json()["tokens"] == [97, 98, 99]
    answer = await post(app, "/detokenize", {"model": "sql", "tokens": [97]})
    assert answer.json() == {"prompt": "a"}
    async with client(app) as http:
        told = [
            (await http.get(f"/tokenizer_info?model={name}")).json() for name in ("sql", "base")
        ]
    assert told[0] == told[1]
    assert "model_max_length" in told[0]


class Replica:
    def __init__(self, problem: str) -> None:
        self._problem = problem

    async def ask_replicas(self, method: str, *args: Any, timeout_s: float) -> list[Any]:
        return [{"speaks": "tokens", "problem": self._problem, "device": "cpu"}]


@pytest.mark.parametrize("problem", ["", "a step failed"])
async def test_it_is_ready_when_its_model_is(problem: str) -> None:
    states = await Graph({"base": Replica(problem)}, parents=parents(SETTINGS)).ready()
    assert [*states] == ["base", "sql"]
    assert states["sql"].problem == problem
    assert states["sql"].description == {"adapter of": "base"}
