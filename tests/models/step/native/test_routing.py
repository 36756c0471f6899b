from __future__ import annotations

from collections import abc
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from models.step.native.build import NoNative
from models.step.native.gated import Activation, Curve, activation_of
from models.step.native.routing import Groups, read_router

EXPERTS, CHOSEN, HIDDEN = 12, 3, 32
Scores = abc.Callable[[Tensor], Tensor]


class Block(nn.Module):
    """Chooses by ``rule``, which takes logits to what is liked and to scores."""

    def __init__(self, rule: abc.Callable[[Tensor], tuple[Tensor, Tensor]], scale: float) -> None:
        super().__init__()
        weight = torch.randn(EXPERTS, HIDDEN, generator=torch.Generator().manual_seed(1))
        self.weight = nn.Parameter(weight * HIDDEN**-0.5)
        self.experts = nn.Identity()
        self.rule, self.scale = rule, scale

    def forward(self, hidden: Tensor) -> Tensor:
        liked, scores = self.rule(hidden[0] @ self.weight.T)
        index = liked.topk(CHOSEN, sorted=False).indices
        found: Tensor = self.experts(hidden[0], index, scores.gather(1, index) * self.scale)
        return found


def once(scores: Scores) -> abc.Callable[[Tensor], tuple[Tensor, Tensor]]:
    return lambda logits: (scores(logits), scores(logits))


@pytest.mark.parametrize("scale", [1.0, 2.5])
@pytest.mark.parametrize(("sigmoid", "scores"), [(False, "softmax"), (True, "sigmoid")])
def test_scores_and_their_scale_are_told(sigmoid: bool, scores: str, scale: float) -> None:
    how: dict[str, Scores] = {"softmax": lambda x: x.softmax(-1), "sigmoid": torch.sigmoid}
    block = Block(once(how[scores]), scale)
    rule = read_router(block, block.weight).rule
    assert (rule.experts, rule.chosen, rule.sigmoid) == (EXPERTS, CHOSEN, sigmoid)
    assert not rule.normalised
    assert rule.scale == pytest.approx(scale, rel=1e-4)
    assert isinstance(block.experts, nn.Identity)


def test_what_is_added_is_told_by_where_it_counts() -> None:
    added = torch.linspace(-1, 1, EXPERTS)
    logits = Block(once(lambda logits: (logits + added).softmax(-1)), 1.0)
    scores = Block(lambda logits: (logits.softmax(-1) + added, logits.softmax(-1)), 1.0)
    first, second = (read_router(block, block.weight, added) for block in (logits, scores))
    assert first.bias is not None
    assert first.preference is None
    assert second.bias is None
    assert second.preference is not None


def test_groups_are_told() -> None:
    def rule(logits: Tensor) -> tuple[Tensor, Tensor]:
        scores = logits.sigmoid()
        each = scores.view(-1, 4, 3)
        best = each.topk(2).values.sum(-1).topk(2).indices
        kept = torch.zeros(len(scores), 4).scatter(1, best, 1.0).bool()
        return each.masked_fill(~kept[..., None], -torch.inf).flatten(1), scores

    block = Block(rule, 1.0)
    found = read_router(block, block.weight, groups=Groups(4, 2)).rule
    assert (found.groups, found.allowed) == (4, 2)
    with pytest.raises(NoNative, match="do not know"):
        read_router(block, block.weight, groups=Groups(2, 1))


@pytest.mark.parametrize("scores", [torch.tanh, lambda x: x.softmax(-1).square()])
def test_other_ways_to_choose_are_refused(scores: Scores) -> None:
    block = Block(once(scores), 1.0)
    with pytest.raises(NoNative, match="do not know"):
        read_router(block, block.weight)
    assert isinstance(block.experts, nn.Identity)


class Activating:
    """Stands for experts."""

    is_concatenated = False
    alpha, limit = 1.7, 7.0

    def __init__(self, how: abc.Callable[[Tensor, Tensor], Tensor]) -> None:
        self.how = how

    def _apply_gate(self, both: Tensor) -> Tensor:
        return self.how(both[..., ::2], both[..., 1::2])


def test_activations_are_told() -> None:
    for activation in (
        Activation(),
        Activation(Curve.GELU_TANH),
        Activation(limit=7.0),
        Activation(slope=1.7, limit=7.0, shift=1.0),
    ):
        assert activation_of(Activating(activation)) == activation
    other: Any = Activating(lambda gate, up: gate.relu() * up)
    with pytest.raises(NoNative, match="do not know"):
        activation_of(other)
