from __future__ import annotations

from ray.serve.autoscaling_policy import default_autoscaling_policy

from deployments.autoscaling import ByWork
from tests.bench.scaling import LOADS, STEP, Phase, Policy, simulate

IDLE = Phase(rate=0.05, prompt=10, answer=10, seconds=120.0)


def test_a_fleet_with_little_to_do_is_one_replica() -> None:
    policies: list[Policy] = [default_autoscaling_policy, ByWork()]
    for policy in policies:
        seen = simulate([IDLE], policy, target=8)
        assert seen.replica_minutes <= 2.1
        assert STEP[0] < seen.worst < 3 * STEP[0]


def test_documents_after_chats_wait_less_for_fewer_replicas() -> None:
    """By one number for both; of ongoing requests each would need another."""
    phases = LOADS["chats, documents, essays, chats"][:2]
    work = simulate(phases, ByWork(), target=8)
    for target in (8, 16):
        ongoing = simulate(phases, default_autoscaling_policy, target)
        assert work.worst < ongoing.worst / 2
    assert work.replica_minutes < simulate(phases, default_autoscaling_policy, 4).replica_minutes
