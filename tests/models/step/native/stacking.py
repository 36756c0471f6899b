"""Stacks of tiny models, and the logits of their steps."""

from __future__ import annotations

from collections import abc
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedModel

from models.step.attention import PAGED
from models.step.native.blueprint import read_blueprint
from models.step.native.build import THIS_MACHINE
from models.step.native.forward import NativeForward
from models.step.native.stack import ROUNDED, Stack
from models.step.native.team import Team
from models.step.native.weights import Held
from models.step.probe import ProbeSpan
from models.step.trace import Trace
from tests.models.step.tiny import VOCAB

BLOCK = 16
EXACT = {"kv_dtype": torch.float32, "arithmetic": torch.float32}
FITTING: dict[str, Any] = {"hidden_size": 64, "intermediate_size": 80, "head_dim": 16}


def in_bfloat16(model: PreTrainedModel) -> PreTrainedModel:
    """The same model with weights that bfloat16 holds, computing in float32."""
    for parameter in model.parameters():
        parameter.data = parameter.data.bfloat16().float()
    return model


def as_they_are(model: PreTrainedModel) -> PreTrainedModel:
    """Of float32, which no smaller format holds."""
    return model


Weights = abc.Callable[[PreTrainedModel], PreTrainedModel]
MULTIPLIED: list[tuple[Weights, dict[str, Any]]] = [
    (as_they_are, {}),
    (as_they_are, {"held": Held.IN_PLACE}),
    (as_they_are, {"held": Held.INT8}),
    (as_they_are, {"held": Held.INT4}),
    (in_bfloat16, {}),
    (in_bfloat16, {"arithmetic": torch.bfloat16}),
    (in_bfloat16, {"arithmetic": torch.bfloat16, "kv_dtype": torch.bfloat16}),
]


def stack_of(model: PreTrainedModel, **changes: Any) -> Stack:
    model.set_attn_implementation(PAGED)
    team = Team(changes.pop("threads", 2), changes.pop("processor", THIS_MACHINE))
    wishes: dict[str, Any] = {**EXACT, **changes}
    if changes.get("held") in ROUNDED:
        wishes["arithmetic"] = torch.int8
    blueprint = read_blueprint(model, Trace(model))
    stack = Stack(blueprint, team, positions=128, block_size=BLOCK, **wishes)
    stack.allocate(32)
    return stack


def forward_of(model: PreTrainedModel, **changes: Any) -> NativeForward:
    return NativeForward(stack_of(model, **changes), BLOCK)


def logits_of(
    forward: NativeForward,
    *chunks: tuple[int, list[int], tuple[int, ...]],
    keep: list[int] | None = None,
) -> Tensor:
    """Logits of one step over (start, ids, blocks): all, or those after the tokens ``keep``."""
    layout = forward.layout([ProbeSpan(start, len(ids), blocks) for start, ids, blocks in chunks])
    ids = torch.tensor([id for _, ids, _ in chunks for id in ids])
    kept = torch.arange(layout.tokens) if keep is None else torch.tensor(keep, dtype=torch.int64)
    return forward(layout, ids, kept).clone()


def prompt(length: int, seed: int = 0) -> list[int]:
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(3, VOCAB, (length,), generator=generator).tolist()
