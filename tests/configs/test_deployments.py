from __future__ import annotations

from configs.deployments import deployment_name, deployment_names
from configs.settings import AppSettings
from deployments.app import build
from tests.deployments.graphs import bound

MODELS = [
    {"name": "org/a", "factory": "models.mock:MockEngine"},
    {"name": "b", "task": "embed", "factory": "a.module:of_my_own"},
]


def test_other_characters_than_serve_takes_are_replaced() -> None:
    assert deployment_name("Model", "org/name:tag v1.0_x") == "Model-org-name-tag-v1.0_x"


def test_they_are_those_of_the_graph() -> None:
    for kept in (0, 10):
        settings = AppSettings.model_validate({"models": MODELS, "responses_kept": kept})
        assert sorted(deployment_names(settings)) == sorted(bound(build(settings)))
