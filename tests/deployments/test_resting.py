"""What has no replicas because it needs none, and what has none because they are lost."""

from __future__ import annotations

from typing import Any

import pytest
from ray.serve._private.common import DeploymentStatus, DeploymentStatusTrigger, ReplicaState
from ray.serve.schema import DeploymentStatusOverview

from deployments.graph import Graph
from deployments.resting import rests

NONE: dict[ReplicaState, int] = {}


@pytest.mark.parametrize(
    ("status", "trigger", "replicas", "resting"),
    [
        ("HEALTHY", "DOWNSCALE_COMPLETED", NONE, True),
        ("HEALTHY", "CONFIG_UPDATE_COMPLETED", NONE, True),
        ("UPSCALING", "AUTOSCALING", {ReplicaState.STARTING: 1}, True),
        ("DOWNSCALING", "AUTOSCALING", {ReplicaState.STOPPING: 1}, True),
        ("HEALTHY", "UPSCALE_COMPLETED", {ReplicaState.RUNNING: 1}, False),
        ("UPDATING", "CONFIG_UPDATE_STARTED", {ReplicaState.STARTING: 1}, False),
        ("UNHEALTHY", "REPLICA_STARTUP_FAILED", {ReplicaState.STARTING: 1}, False),
        ("UNHEALTHY", "HEALTH_CHECK_FAILED", {ReplicaState.STARTING: 1}, False),
    ],
)
def test_rest_is_told_by_serves_status(
    status: str, trigger: str, replicas: dict[ReplicaState, int], resting: bool
) -> None:
    told = DeploymentStatus(status), DeploymentStatusTrigger(trigger)
    assert rests(DeploymentStatusOverview(*told, replicas, "")) is resting


def test_what_serve_does_not_know_does_not_rest() -> None:
    assert not rests(None)


class Replicas:
    def __init__(self, *problems: str) -> None:
        self._problems = problems

    async def ask_replicas(self, method: str, *args: Any, timeout_s: float) -> list[Any]:
        return [{"speaks": "tokens", "problem": problem} for problem in self._problems]


async def test_a_model_that_rests_is_ready() -> None:
    async def resting() -> frozenset[str]:
        return frozenset({"resting", "ill"})

    engines = {"resting": Replicas(), "lost": Replicas(), "ill": Replicas("a step failed")}
    parents = {"adapter": "resting"}
    states = await Graph(engines, parents=parents, resting=resting).ready()
    problems = {name: state.problem for name, state in states.items()}
    assert problems == {
        "resting": "",
        "lost": "no replica answers",
        "ill": "a step failed",
        "adapter": "",
    }
    assert states["resting"].description == {"replicas": "none until somebody asks"}


async def test_serve_is_asked_only_where_no_replica_answers() -> None:
    async def resting() -> frozenset[str]:
        raise AssertionError

    assert not (await Graph({"here": Replicas("")}, resting=resting).ready())["here"].problem
