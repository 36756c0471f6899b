"""The part of a Serve replica that ``@serve.batch`` asks for, without Ray running."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from ray.serve import context
from ray.serve._private.common import DeploymentID, ReplicaID
from ray.serve._private.config import DeploymentConfig
from ray.serve.schema import ReplicaRank


@contextmanager
def replica_context(max_ongoing_requests: int = 1000) -> Iterator[None]:
    """Makes this process look like a replica of a deployment ``Model`` to ``ray.serve``."""
    before = context._INTERNAL_REPLICA_CONTEXT
    context._set_internal_replica_context(
        replica_id=ReplicaID("test", DeploymentID(name="Model", app_name="test")),
        servable_object=replica_context,
        _deployment_config=DeploymentConfig(max_ongoing_requests=max_ongoing_requests),
        rank=ReplicaRank(rank=0, node_rank=0, local_rank=0),
        world_size=1,
    )
    try:
        yield
    finally:
        context._INTERNAL_REPLICA_CONTEXT = before
