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
    limits = {"requests_per_minute": 1}
    for others in (
        {"responses_kept": 0},
        {"batches": {"folder": "batches"}},
        {"api_keys": ["x"], "rate_limits": limits},
        {"api_keys": ["x"], "rate_limits": {**limits, "storage": "redis://127.0.0.1"}},
    ):
        given = {"models": MODELS, **others}
        settings = AppSettings.model_validate(given)
        assert sorted(deployment_names(settings)) == sorted(bound(build(settings)))
