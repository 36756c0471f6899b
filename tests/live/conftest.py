"""A server with several replicas of its models, which tests of two files ask."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.serving import Server, serving

SCALED, FILLS = "scaled", 4  # the model whose replicas follow its work; requests that fill one
OWN = "tests.graph.own_models"


@pytest.fixture(scope="session")
def lives(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Its files are replicas of the fragile model that will die on an "A"."""
    return tmp_path_factory.mktemp("lives")


@pytest.fixture(scope="session")
def replicas_server(lives: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Two models with two replicas each, and one whose replicas follow its work."""
    path = tmp_path_factory.mktemp("replicas") / "config.yaml"
    path.write_text(yaml.safe_dump(_of_replicas(lives)))
    with serving(path) as server:
        yield server


def _of_replicas(lives: Path) -> dict[str, Any]:
    """By its requests the one that is scaled would never have a second replica."""
    recall = {"factory": f"{OWN}:recall", "factory_args": {"seconds": 0.01}}
    slower = {"factory": f"{OWN}:recall", "factory_args": {"seconds": 0.02}}
    models = [
        {"name": "recall", **recall},
        {"name": "fragile", "factory": f"{OWN}:fragile", "factory_args": {"life": str(lives)}},
        {"name": SCALED, **slower, "engine": {"max_running": FILLS}},
    ]
    by_work = {
        "min_replicas": 1,
        "max_replicas": 2,
        "target_ongoing_requests": 1000,
        "metrics_interval_s": 1.0,
        "look_back_period_s": 3.0,
        "upscale_delay_s": 1.0,
        "downscale_delay_s": 3.0,
        "policy": {"policy_function": "deployments.autoscaling:ByWork"},
    }
    small = {"ray_actor_options": {"num_cpus": 0.1}}
    deployments = [
        {"name": "Ingress", **small},
        {"name": "Model-recall", "num_replicas": 2, **small},
        {"name": "Model-fragile", "num_replicas": 2, **small},
        {"name": f"Model-{SCALED}", "autoscaling_config": by_work, **small},
    ]
    application = {
        "name": "stepserve",
        "import_path": "deployments.app:build",
        "args": {"models": models},
        "deployments": deployments,
    }
    return {"applications": [application]}
