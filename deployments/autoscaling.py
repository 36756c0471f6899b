"""A policy for Serve's autoscaling of Models: as many replicas as the work needs.

Serve pickles this module into its controller, so it imports nothing of ours.
"""

from __future__ import annotations

from typing import Any

from ray.serve.config import AutoscalingContext


class ByWork:
    """As many that each has ``load``, and what waits is done within ``waiting_s`` seconds.

    Of engines that tell no load it goes by ``target_ongoing_requests``, as Serve's own policy does.
    """

    def __init__(self, load: float = 0.65, waiting_s: float = 10.0) -> None:
        if not 0 < load <= 1 or waiting_s <= 0:
            raise ValueError("load must be above 0 and at most 1, waiting_s above 0")
        self._load = load
        self._waiting_s = waiting_s

    def __call__(self, context: AutoscalingContext) -> tuple[float, dict[str, Any]]:
        told = context.aggregated_metrics or {}
        if "load" not in told:
            config: Any = context.config
            return context.total_num_requests / config.get_target_ongoing_requests(), {}
        loads = sum(told["load"].values()) / self._load
        return loads + sum(told["waiting_s"].values()) / self._waiting_s, {}
