from __future__ import annotations

from typing import Any

import pytest
from ray import cloudpickle
from ray.serve.config import AutoscalingConfig, AutoscalingPolicy

from deployments.autoscaling import ByWork
from deployments.served import ServedTokens
from models.metrics import LlmMetrics
from models.schedule.admission import Admission
from models.scheduled import Scheduled
from models.step_loop import StepLoop
from models.stepper import Stepper
from models.text.loading import byte_pipeline
from models.token_engine import TokenEngine
from tests.graph.asking import ask
from tests.graph.own_models import recall


class Context:
    """What a policy is told; ``requests`` are all that are ongoing."""

    def __init__(self, requests: float = 0, **told: dict[str, float]) -> None:
        self.aggregated_metrics = told or None
        self.total_num_requests = requests
        self.config = AutoscalingConfig(target_ongoing_requests=8)


def wanted(context: Any, **numbers: float) -> float:
    replicas, state = ByWork(**numbers)(context)
    assert state == {}
    return replicas


def test_replicas_for_the_work_that_comes_and_for_what_waits() -> None:
    loads, waits = {"a": 0.6, "b": 0.4}, {"a": 0.0, "b": 30.0}
    assert wanted(Context(load=loads, waiting_s={"a": 0.0, "b": 0.0}), load=0.5) == 2
    assert wanted(Context(load=loads, waiting_s=waits), load=0.5, waiting_s=10) == 5
    assert wanted(Context(load={"a": 0.0}, waiting_s={"a": 0.0})) == 0


def test_engines_that_tell_no_load_are_scaled_by_their_requests() -> None:
    assert wanted(Context(requests=20)) == 2.5


def test_serves_controller_needs_nothing_of_ours() -> None:
    policy = AutoscalingPolicy(  # type: ignore[no-untyped-call]
        policy_function="deployments.autoscaling:ByWork", policy_kwargs={"load": 0.5}
    )
    pickled = policy.get_serialized_policy_def()
    assert pickled is not None
    assert b"models." not in pickled
    assert cloudpickle.loads(pickled)(**policy.policy_kwargs)(Context(requests=8))[0] == 1


async def test_a_replica_tells_of_its_work_once() -> None:
    model, metrics = recall(), LlmMetrics("m")
    stepper = Stepper(model, step_tokens=256, metrics=metrics)
    engine = TokenEngine(stepper, StepLoop(stepper), Admission(2, 4, 4096), metrics)
    served = ServedTokens(engine)
    assert served.demand() == {"load": 0.0, "waiting_s": 0.0}
    with Scheduled("m", engine, byte_pipeline()) as scheduled:
        assert [event async for event in scheduled.generate(ask("hello", 64))]
        told = served.demand()
        assert 0 < told["load"] <= 1
        assert told["waiting_s"] == 0
        assert served.demand()["load"] == 0.0


@pytest.mark.parametrize("numbers", [{"load": 0.0}, {"load": 1.5}, {"waiting_s": 0.0}])
def test_numbers_without_meaning_are_errors(numbers: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="must be"):
        ByWork(**numbers)
