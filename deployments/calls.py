"""Calls to replicas: what fails is ours to tell, in our own types and words, and never hangs.

A replica that dies before it has answered is replaced once by another.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any, Protocol, TypeVar

import grpc  # type: ignore[import-untyped]
from ray.exceptions import RayActorError
from ray.serve.exceptions import (
    BackPressureError,
    DeploymentUnavailableError,
    ReplicaUnavailableError,
    RequestCancelledError,
)
from ray.serve.handle import DeploymentHandle

from deployments.wire import Packed
from models.errors import Busy, EngineError, Failed, Invalid

logger = logging.getLogger("stepserve")

BUSY_RETRY_S = 1.0
ABSENT_RETRY_S = 5.0

Result = TypeVar("Result")


class ReplicaLost(Failed):
    """The replica ended while it answered."""

    def __init__(self) -> None:
        super().__init__("The replica that served this request was lost. Please try again.")

    def __reduce__(self) -> tuple[type[ReplicaLost], tuple[()]]:
        return ReplicaLost, ()


class Stream(Protocol):
    """A handle's stream. Its producer goes on until ``cancel``, also when nobody reads it."""

    def __anext__(self) -> Awaitable[list[Packed]]: ...

    def cancel(self) -> None: ...


async def result_of(call: Callable[[], Any]) -> Any:
    """The result of a unary call; an error that it returned is raised.

    Cancelling this cancels the call in its replica.
    """
    try:
        result = await _unary(call())
    except ReplicaLost:
        logger.warning("a replica was lost before it answered: asking another")
        result = await _unary(call())
    if isinstance(result, EngineError):
        raise result
    return result


async def _unary(response: Any) -> Any:
    try:
        return await _answer(response)
    except asyncio.CancelledError:
        response.cancel()
        raise


async def results_of_all(
    handle: DeploymentHandle[Any], method: str, *args: Any, timeout_s: float
) -> list[Any]:
    """What each replica returned, None for one that failed or took longer; empty without any."""
    try:
        async with asyncio.timeout(timeout_s):
            # Its public results_async() loses all results when one of them is late.
            replicas = await handle.broadcast(method, *args)._fetch_replica_results_async()
    except (DeploymentUnavailableError, TimeoutError):
        return []
    return await asyncio.gather(*(_in_time(replica, timeout_s) for replica in replicas))


async def _in_time(replica: Any, timeout_s: float) -> Any:
    try:
        async with asyncio.timeout(timeout_s):
            return await _answer(replica.get_async())
    except (EngineError, TimeoutError):
        replica.cancel()
        return None


async def next_of(stream: Stream) -> list[Packed]:
    """The next items of a stream, none at its end."""
    try:
        return await _answer(stream.__anext__())
    except StopAsyncIteration:
        return []


async def _answer(answer: Awaitable[Result]) -> Result:
    try:
        return await answer
    except (EngineError, StopAsyncIteration):
        raise
    except asyncio.CancelledError:
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            raise  # it is ours; otherwise the replica's, which shuts down
        raise ReplicaLost from None
    except Exception as error:  # whatever Serve, Ray, gRPC or the replica's own code may raise
        raise _translated(error) from error


def _translated(error: Exception) -> EngineError:
    match error:
        case BackPressureError():
            return Busy("The server takes no more requests now.", BUSY_RETRY_S)
        case DeploymentUnavailableError():
            return Busy("The model is not available now.", ABSENT_RETRY_S)
        case RayActorError() | ReplicaUnavailableError() | RequestCancelledError():
            return ReplicaLost()
        case grpc.aio.AioRpcError():
            return _of_status(error.code())
    logger.error("a replica failed", exc_info=error)
    return Failed("The model failed to serve this request.")


def _of_status(code: grpc.StatusCode) -> EngineError:
    if code in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED):
        return ReplicaLost()
    if code is grpc.StatusCode.RESOURCE_EXHAUSTED:
        return Invalid("The request is too large for this server.")
    logger.error("a call to a replica failed with status %s", code.name)
    return Failed("The model failed to serve this request.")
