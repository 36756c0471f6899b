"""The document of the server's own routes: valid, complete, and true to what is answered."""

from __future__ import annotations

from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, settings
from jsonschema import Draft202012Validator
from schemathesis import Case
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    negative_data_rejection,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
    unsupported_method,
)
from starlette.applications import Starlette
from starlette.routing import Route

from deployments.openapi.document import document
from models.request import LIMITS
from tests.deployments.serving import Counting, TokenizingMock, client, make_app

CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
    response_headers_conformance,
    unsupported_method,
    negative_data_rejection,
]
EXAMPLES = 10


def make() -> Starlette:
    generating = TokenizingMock("mock", pieces=["a", "b"], max_context=64)
    return make_app(generating, Counting("vectors"), chat_page=False)


schema = schemathesis.openapi.from_dict(document(["mock"], ["vectors"], keys=False))
schema.app = make()


def declared(app: Starlette) -> set[tuple[str, str]]:
    found: set[tuple[str, str]] = set()
    for route in app.routes:
        assert isinstance(route, Route)
        for method in (route.methods or set()) - {"HEAD"}:
            found.add((method.lower(), route.path.replace(":path", "")))
    return found


def test_it_tells_of_every_route_and_no_other() -> None:
    paths = document(["mock"], keys=False)["paths"]
    assert {(method, path) for path in paths for method in paths[path]} == declared(make())


async def test_it_is_served_as_it_is() -> None:
    async with client(make_app(api_keys=["one"])) as http:
        answer = await http.get("/openapi.json")
    assert answer.json() == document(["mock"], keys=True)


def test_every_schema_is_one() -> None:
    for one in document(["a", "b"], keys=True)["components"]["schemas"].values():
        Draft202012Validator.check_schema(one)


def test_only_what_needs_a_key_says_so() -> None:
    paths = document(["mock"], keys=True)["paths"]
    assert "security" in paths["/v1/messages"]["post"]
    assert "security" not in paths["/health"]["get"]
    assert "security" not in document(["mock"], keys=False)["paths"]["/v1/messages"]["post"]


def test_only_what_is_computed_may_be_too_much_for_a_key() -> None:
    paths = document(["mock"], keys=True)["paths"]
    limited = {path for path in paths for one in paths[path].values() if "429" in one["responses"]}
    generating = {"/v1/chat/completions", "/v1/completions", "/v1/responses", "/v1/messages"}
    assert limited == {*generating, "/v1/embeddings"}


@pytest.mark.parametrize(
    ("name", "value", "right"),
    [
        ("ChatRequest", {"model": "mock", "messages": [{"role": "user", "content": "x"}]}, True),
        ("ChatRequest", {"model": "other", "messages": [{"role": "user", "content": "x"}]}, False),
        ("ChatRequest", {"model": "mock", "messages": [], "n": 1}, False),
        ("CompletionRequest", {"model": "mock", "prompt": [[1], [2]], "user": "u"}, True),
        ("CompletionRequest", {"model": "mock", "temperature": 3}, False),
        ("CompletionRequest", {"model": "mock", "suffix": "x"}, True),
        ("TokenizePromptRequest", {"prompt": "x"}, True),
        (
            "MessageRequest",
            {"model": "mock", "messages": [{"role": "user", "content": "x"}]},
            False,
        ),
        ("ResponseRequest", {"model": "mock", "input": "x", "background": True}, False),
        ("EmbeddingsRequest", {"model": "vectors", "input": "x", "dimensions": 1}, True),
        ("EmbeddingsRequest", {"model": "vectors", "input": [[1], [2]], "user": "u"}, True),
        ("EmbeddingsRequest", {"model": "vectors", "input": ["x", ""]}, False),
        ("EmbeddingsRequest", {"model": "mock", "input": "x"}, False),
        ("EmbeddingsRequest", {"model": "vectors"}, False),
    ],
)
def test_what_a_body_may_be(name: str, value: Any, right: bool) -> None:
    whole = document(["mock"], ["vectors"], keys=False)
    validator = Draft202012Validator({**whole, "$ref": f"#/components/schemas/{name}"})
    assert validator.is_valid(value) is right


@pytest.mark.parametrize("name", LIMITS)
def test_numbers_have_the_limits_of_requests(name: str) -> None:
    low, high = LIMITS[name]
    body = document(["mock"], keys=False)["components"]["schemas"]["ChatRequest"]
    validator = Draft202012Validator(body["properties"][name])
    values = (None, low - 0.01, low, low + 0.01, high, high + 0.01)
    right = [validator.is_valid(value) for value in values]
    assert right == [True, False, True, True, True, False]


# The same endpoints are at the paths without /v1.
@schema.exclude(path_regex="^/v1/(de)?tokenize$").parametrize()
@settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck))
def test_answers_are_what_it_says(case: Case[Any]) -> None:
    case.call_and_validate(checks=CHECKS)
