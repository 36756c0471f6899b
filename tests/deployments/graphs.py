"""What a graph of deployments is made of."""

from __future__ import annotations

from typing import Any

from ray.serve import Application


def bound(application: Application) -> dict[str, Any]:
    """All deployments of a graph by their names."""
    deployment: Any = application._bound_deployment
    found = {deployment.name: deployment}
    for argument in deployment.init_args:
        for child in argument if isinstance(argument, list) else [argument]:
            found |= bound(child) if isinstance(child, Application) else {}
    return found
