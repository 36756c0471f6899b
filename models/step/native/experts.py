"""A feed-forward of many experts of which each token goes through a few, read off its modules."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from models.step.native.build import NoNative
from models.step.native.gated import Activation, Gated, activation_of, read_gated
from models.step.native.library import LANES
from models.step.native.linear import Rows
from models.step.native.routing import Groups, Router, read_router


@dataclass(frozen=True, slots=True)
class Experts:
    """Holds parameters, not what they hold, which goes once it is packed.

    ``shared``: what all tokens go through. ``shared_share``: the logit of how much it counts.
    """

    module: Any
    activation: Activation
    router: Router
    shared: Gated | None
    shared_share: Tensor | None  # [1, hidden]; None: all of it does

    @property
    def matrices(self) -> dict[str, Tensor]:
        """[experts, inner, hidden] of gate and up, [experts, hidden, inner] of down."""
        both, down = self.module.gate_up_proj.detach(), self.module.down_proj.detach()
        if self.module.is_transposed:
            both, down = both.transpose(1, 2), down.transpose(1, 2)
        return {**self._parted(both), "down": down.contiguous()}

    @property
    def biases(self) -> dict[str, Tensor]:
        """[experts, inner] and [experts, hidden] in float32, if there are any."""
        if not self.module.has_bias:
            return {}
        both, down = self.module.gate_up_proj_bias.detach(), self.module.down_proj_bias.detach()
        return {**self._parted(both.float()), "down": down.float()}

    @property
    def step(self) -> int:
        """Rows from one expert's gate, and up, to the next one's."""
        return 2 * self.inner if self._lies_parted else self.inner

    @property
    def _lies_parted(self) -> bool:
        return bool(self.module.is_concatenated) and not self.module.is_transposed

    @property
    def inner(self) -> int:
        return int(self.module.down_proj.shape[1 if self.module.is_transposed else 2])

    @property
    def activations(self) -> tuple[Activation, ...]:
        """Its experts', and what all share."""
        return (self.activation, *(self.shared.activations if self.shared else ()))

    @property
    def linears(self) -> tuple[Rows, ...]:
        return self.shared.linears if self.shared else ()

    @property
    def stacked(self) -> int:
        """Numbers of matrices that are several in one tensor, and of the router."""
        held = (self.router.weight, self.module.gate_up_proj, self.module.down_proj)
        return sum(parameter.numel() for parameter in held)

    def _parted(self, both: Tensor) -> dict[str, Tensor]:
        """By the outputs of each expert. What lies in two parts is not copied."""
        parts = both.chunk(2, 1) if self.module.is_concatenated else (both[:, ::2], both[:, 1::2])
        gate, up = parts if self._lies_parted else (part.contiguous() for part in parts)
        return {"gate": gate, "up": up}


def read_experts(block: nn.Module, plain: Activation, groups: Groups, hidden: int) -> Experts:
    """``plain`` is the activation of what all share. Raises NoNative."""
    module: Any = block.experts
    if not getattr(module, "has_gate", False) or module.has_post_expert_norm:
        raise NoNative(f"{type(module).__name__} are other experts than they know")
    count = len(module.down_proj)
    parts = [part for part in block.children() if part is not module and hasattr(part, "down_proj")]
    shared = read_gated(parts[0], plain, hidden) if parts else None
    held = {id(p) for part in (module, *parts[:1]) for p in part.parameters()}
    rest = [p for p in (*block.parameters(), *block.buffers()) if id(p) not in held]
    weight = [p for p in rest if p.shape == (count, hidden)]
    share = [p for p in rest if p.shape == (1, hidden)]
    bias = [p for p in rest if p.numel() == count]
    most = len(weight) == 1 and len(share) <= len(parts) <= 1 and len(bias) <= 1
    if not most or len(rest) != len(weight) + len(share) + len(bias):
        raise NoNative(f"{type(block).__name__} has other parts than they know")
    router = read_router(block, weight[0], *bias, groups=groups)
    counted = share[0] if share else None
    experts = Experts(module, activation_of(module), router, shared, counted)
    if experts.inner % LANES or hidden % (2 * LANES):
        raise NoNative(f"experts of {experts.inner} numbers are not made of {LANES}")
    return experts
