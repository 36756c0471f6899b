from __future__ import annotations

import pytest

from models.mock import MockEngine
from tests.deployments.schemas import check
from tests.deployments.serving import Probes, chat, client, complete, make_app


async def test_models_are_listed() -> None:
    app = make_app(MockEngine("mock"), MockEngine("org/other-1.5"))
    async with client(app) as http:
        listed = (await http.get("/v1/models")).json()
        check("ListModelsResponse", listed)
        assert [one["id"] for one in listed["data"]] == ["mock", "org/other-1.5"]
        for path in ("org/other-1.5", "org%2Fother-1.5"):
            one = (await http.get(f"/v1/models/{path}")).json()
            check("Model", one)
            assert one == listed["data"][1]


async def test_an_unknown_model_is_not_found() -> None:
    app = make_app()
    async with client(app) as http:
        missing = await http.get("/v1/models/other")
    for answer in (missing, await chat(app, model="other"), await complete(app, model="")):
        assert answer.status_code == 404
        check("ErrorResponse", answer.json())
        error = answer.json()["error"]
        assert (error["code"], error["param"]) == ("model_not_found", "model")


async def test_models_are_told_apart() -> None:
    one, other = MockEngine("one", text="1"), MockEngine("other", text="2")
    answer = await chat(make_app(one, other), model="other")
    assert answer.json()["model"] == "other"
    assert answer.json()["choices"][0]["message"]["content"] == "2"


@pytest.mark.parametrize("path", ["/v1", "/v1/nothing", "/v1/chat/completions/", "/docs"])
async def test_unknown_paths(path: str) -> None:
    async with client(make_app()) as http:
        answer = await http.post(path)
    assert answer.status_code == 404
    check("ErrorResponse", answer.json())
    assert answer.json()["error"]["message"] == f"Invalid URL (POST {path})"


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [
        ("GET", "/v1/chat/completions", "POST"),
        ("PUT", "/v1/completions", "POST"),
        ("POST", "/v1/models", "GET, HEAD"),
        ("DELETE", "/v1/models/mock", "GET, HEAD"),
        ("POST", "/health", "GET, HEAD"),
    ],
)
async def test_wrong_methods(method: str, path: str, allowed: str) -> None:
    async with client(make_app()) as http:
        answer = await http.request(method, path)
    assert answer.status_code == 405
    check("ErrorResponse", answer.json())
    assert sorted(answer.headers["allow"].split(", ")) == allowed.split(", ")


async def test_health_is_about_the_process_alone() -> None:
    async with client(make_app(probes=Probes({"mock": "broken"}))) as http:
        assert (await http.get("/health")).json() == {"status": "ok"}


async def test_ready_tells_of_each_model() -> None:
    async with client(make_app(probes=Probes({"a": "", "b": ""}))) as http:
        answer = await http.get("/ready")
    model = {"status": "ready", "description": {"device": "cpu"}}
    assert answer.status_code == 200
    assert answer.json() == {"status": "ready", "models": {"a": model, "b": model}}


async def test_one_model_that_is_not_ready_is_enough() -> None:
    async with client(make_app(probes=Probes({"a": "", "b": "no progress"}))) as http:
        answer = await http.get("/ready")
    assert answer.status_code == 503
    assert answer.json()["status"] == "not ready"
    assert answer.json()["models"]["b"]["status"] == "no progress"


async def test_metrics_are_prometheus_text() -> None:
    async with client(make_app()) as http:
        answer = await http.get("/metrics")
    assert answer.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    assert "stepserve_requests_total 1.0" in answer.text
