from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import grpc  # type: ignore[import-untyped]
import pytest
from grpc.aio import AioRpcError, Metadata  # type: ignore[import-untyped]
from ray.exceptions import ActorUnavailableError, RayActorError
from ray.serve._private.common import DeploymentID
from ray.serve.exceptions import (
    BackPressureError,
    DeploymentUnavailableError,
    ReplicaUnavailableError,
)

from deployments.calls import ReplicaLost, result_of
from models.errors import Busy, EngineError, Failed, Invalid, TooLong


def status(code: grpc.StatusCode) -> AioRpcError:
    return AioRpcError(code, Metadata(), Metadata())


async def fail(error: BaseException) -> Any:
    raise error


async def give(value: Any) -> Any:
    return value


def script(*outcomes: Awaitable[Any]) -> Callable[[], Awaitable[Any]]:
    """A call whose attempts end as told."""
    left = list(outcomes)
    return lambda: left.pop(0)


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (BackPressureError(num_queued_requests=9, max_queued_requests=8), Busy),
        (DeploymentUnavailableError(DeploymentID("Model", "app")), Busy),
        (status(grpc.StatusCode.RESOURCE_EXHAUSTED), Invalid),
        (status(grpc.StatusCode.INTERNAL), Failed),
        (RuntimeError("Traceback (most recent call last): secret"), Failed),
    ],
)
async def test_failures_are_told_in_our_types_and_words(
    error: Exception, kind: type[EngineError]
) -> None:
    with pytest.raises(kind) as raised:
        await result_of(script(fail(error)))
    assert "Traceback" not in str(raised.value)


@pytest.mark.parametrize(
    "error",
    [
        RayActorError(),
        ActorUnavailableError("gone", None),
        ReplicaUnavailableError("replica"),
        status(grpc.StatusCode.UNAVAILABLE),
        asyncio.CancelledError(),  # the replica's, not ours
    ],
)
async def test_a_lost_replica_is_replaced_once(error: BaseException) -> None:
    assert await result_of(script(fail(error), give("answer"))) == "answer"
    with pytest.raises(ReplicaLost):
        await result_of(script(fail(error), fail(error)))


async def test_an_error_that_was_returned_is_raised() -> None:
    with pytest.raises(TooLong):
        await result_of(script(give(TooLong(9, 8))))


async def test_our_own_cancellation_stays_one() -> None:
    call = asyncio.create_task(asyncio.sleep(60))
    task = asyncio.create_task(result_of(script(call)))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert call.cancelled()
