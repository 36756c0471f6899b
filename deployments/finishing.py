"""How running answers become whole before Serve ends, and its proxies with it."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from ray import serve
from ray.serve.context import _get_global_client

from deployments.calls import results_of_all

Details = Mapping[str, Any]  # as Serve's REST API tells them


async def finish() -> None:
    """Every Ingress refuses what is new from now on.

    Returns when running answers are whole, or have taken an Ingress's
    ``graceful_shutdown_timeout_s``; those of an application that was never ready are not waited
    for.
    """
    client = _get_global_client(raise_if_no_controller_running=False)
    if client is None:
        return
    applications: Mapping[str, Details] = client.get_serve_details()["applications"]
    ready = (name for name, one in applications.items() if has_answered(one))
    await asyncio.gather(*(_finish(name, applications[name]["deployments"]) for name in ready))


def has_answered(application: Details) -> bool:
    """Whether it may be answering somebody: it was ready once.

    Requests are answered as soon as every deployment has a replica that runs; Serve tells of the
    application as one that deploys for up to some seconds more.
    """
    deployments: Mapping[str, Details] = application["deployments"]
    return application["status"] != "DEPLOYING" or all(map(_runs, deployments.values()))


async def _finish(application: str, deployments: Mapping[str, Details]) -> None:
    if not deployments:
        return
    ingress = serve.get_app_handle(application)
    told = deployments[ingress.deployment_name]
    if _runs(told):
        patience_s = told["deployment_config"]["graceful_shutdown_timeout_s"]
        await results_of_all(ingress, "finish", timeout_s=patience_s)


def _runs(deployment: Details) -> bool:
    return any(replica["state"] == "RUNNING" for replica in deployment["replicas"])
