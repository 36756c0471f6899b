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
    ready = (name for name, one in applications.items() if one["status"] != "DEPLOYING")
    await asyncio.gather(*(_finish(name, applications[name]["deployments"]) for name in ready))


async def _finish(application: str, deployments: Mapping[str, Details]) -> None:
    if not deployments:
        return
    ingress = serve.get_app_handle(application)
    told = deployments[ingress.deployment_name]
    if any(replica["state"] == "RUNNING" for replica in told["replicas"]):
        patience_s = told["deployment_config"]["graceful_shutdown_timeout_s"]
        await results_of_all(ingress, "finish", timeout_s=patience_s)
