from __future__ import annotations

import pytest

from deployments.finishing import has_answered

RUNNING = {"replicas": [{"state": "STARTING"}, {"state": "RUNNING"}]}
STARTING = {"replicas": [{"state": "STARTING"}]}
NONE = {"replicas": list[object]()}  # scaled to zero


@pytest.mark.parametrize(
    ("status", "deployments", "answered"),
    [
        ("DEPLOYING", {}, True),  # there is nobody to ask
        ("DEPLOYING", {"Ingress": RUNNING, "Model": STARTING}, False),
        ("DEPLOYING", {"Ingress": RUNNING, "Model": NONE}, False),
        ("DEPLOYING", {"Ingress": RUNNING, "Model": RUNNING}, True),  # Serve has yet to tell it
        ("RUNNING", {"Ingress": RUNNING, "Model": NONE}, True),
        ("UNHEALTHY", {"Ingress": RUNNING, "Model": STARTING}, True),
    ],
)
def test_running_answers_are_waited_for_once_all_deployments_run(
    status: str, deployments: dict[str, object], answered: bool
) -> None:
    assert has_answered({"status": status, "deployments": deployments}) == answered
