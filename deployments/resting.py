"""Models that rest: Serve has scaled them to no replica, and starts one when somebody asks."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from ray import serve
from ray.serve._private.common import DeploymentStatus, DeploymentStatusTrigger, ReplicaState
from ray.serve.schema import DeploymentStatusOverview

from configs.deployments import deployment_name, model_role
from configs.settings import ModelSettings

Deployments = dict[str, DeploymentStatusOverview]


class Resting:
    """``app`` is Serve's name of the graph."""

    def __init__(self, app: str, models: Iterable[ModelSettings]) -> None:
        self._app = app
        self._deployments = {one.name: deployment_name(model_role(one), one.name) for one in models}

    async def __call__(self) -> frozenset[str]:
        """Their names, as Serve's controller knows them."""
        deployments = await asyncio.to_thread(self._known)
        names = self._deployments.items()
        return frozenset(model for model, name in names if rests(deployments.get(name)))

    def _known(self) -> Deployments:
        app = serve.status().applications.get(self._app)
        return {} if app is None else dict(app.deployments)


def rests(deployment: DeploymentStatusOverview | None) -> bool:
    """Whether it has no running replica because it needs none, or is about to have one again."""
    if deployment is None or deployment.replica_states.get(ReplicaState.RUNNING):
        return False
    scaled = deployment.status_trigger is DeploymentStatusTrigger.AUTOSCALING
    return scaled or deployment.status is DeploymentStatus.HEALTHY
