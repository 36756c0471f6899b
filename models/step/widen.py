"""A model that computes in float32 while its weights stay as they were stored: half the memory."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle
from transformers import PreTrainedModel

from models.step.opened import WEIGHTS, kinds

HALVES = {"BF16": torch.bfloat16, "F16": torch.float16}


def stored_half(folder: Path) -> torch.dtype | None:
    """The type of half precision that all weights in ``folder`` are of, if they are of one."""
    found = {kind for file in folder.glob(WEIGHTS) for _, kind in kinds(file)}
    return HALVES.get(found.pop()) if len(found) == 1 else None


def widen(model: PreTrainedModel) -> bool:
    """From now on a module computes with its weights as float32, made for just so long.

    False, and nothing is done, if the model holds other numbers that are rounded already.
    """
    if any(b.is_floating_point() and b.dtype != torch.float32 for b in model.buffers()):
        return False
    modules = [m for m in model.modules() if any(True for _ in m.parameters(recurse=False))]
    room = _Room()
    vars(model)["widened"] = [handle for module in modules for handle in _hooks(module, room)]
    return True


def widen_for_good(model: PreTrainedModel) -> None:
    """Weights of a widened model become float32 themselves; of others nothing changes."""
    if widen_no_more(model):
        model.to(torch.float32)  # type: ignore[arg-type]


def widen_no_more(model: PreTrainedModel) -> bool:
    """Its modules compute as they would have; whether they did not before."""
    handles: list[RemovableHandle] = vars(model).pop("widened", [])
    for handle in handles:
        handle.remove()
    return bool(handles)


def computed_in(model: PreTrainedModel) -> torch.dtype:
    """The type of what goes from module to module."""
    return torch.float32 if "widened" in vars(model) else model.dtype


class _Room:
    """For the floats of one linear layer at a time: fresh pages cost more than what they hold."""

    def __init__(self) -> None:
        self._numbers = torch.empty(0)

    def floats(self, weight: Tensor) -> Tensor:
        if len(self._numbers) < weight.numel():
            self._numbers = torch.empty(weight.numel())
        return self._numbers[: weight.numel()].view(weight.shape).copy_(weight)


def _hooks(module: nn.Module, room: _Room) -> list[RemovableHandle]:
    if type(module) is nn.Embedding:  # few of its rows are asked for at once
        return [module.register_forward_hook(lambda _, __, rows: rows.float())]
    held: dict[nn.Parameter, Tensor] = {}

    def before(module: nn.Module, _: Any) -> None:
        for parameter in module.parameters(recurse=False):
            held[parameter] = parameter.data
            alone = type(module) is nn.Linear and parameter is module.weight
            parameter.data = room.floats(parameter.data) if alone else parameter.data.float()

    def after(*_: Any) -> None:
        for parameter, data in held.items():
            parameter.data = data
        held.clear()

    return [
        module.register_forward_pre_hook(before),
        module.register_forward_hook(after, always_call=True),
    ]
