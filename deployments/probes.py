"""What the ingress asks of the graph besides engines: is every model ready, and its metrics."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol


@dataclass(frozen=True, slots=True)
class ModelState:
    """``problem`` is empty while the model makes progress, else what is wrong with it.

    ``description`` is for people: the device, the kernels, whatever the model tells of itself.
    """

    problem: str = ""
    description: Mapping[str, Any] = field(default_factory=dict)


class Probes(Protocol):
    """Both are asked under a deadline and may be cancelled at any moment."""

    async def ready(self) -> Mapping[str, ModelState]:
        """The state of each model by its name."""
        ...

    async def metrics(self) -> str:
        """Prometheus text, summed over replicas."""
        ...
