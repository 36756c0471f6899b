"""How a layer chooses its experts, told by what it does with a few random rows."""

from __future__ import annotations

from collections import abc
from dataclasses import dataclass, replace
from itertools import product
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from models.step.exact import in_float32
from models.step.native.build import NoNative

ROWS = 32
MOST_ERROR = 1e-3  # of shares
LEAST = 1e-20  # sum of scores


class Groups(NamedTuple):
    """Experts are of so many groups. A token's are of those that are allowed: with the best two."""

    groups: int = 1
    allowed: int = 1


ALL = Groups()


@dataclass(frozen=True, slots=True)
class Rule:
    """``groups`` and ``allowed``: see ``Groups``."""

    experts: int
    chosen: int
    sigmoid: bool  # of each logit, else the softmax of all
    normalised: bool  # shares are of the sum of the chosen scores
    groups: int = 1
    allowed: int = 1
    scale: float = 1.0  # of the shares


@dataclass(frozen=True, slots=True)
class Router:
    """``bias`` is added to the logits, ``preference`` to the scores, to choose by."""

    rule: Rule
    weight: Tensor  # [experts, hidden]
    bias: Tensor | None
    preference: Tensor | None


@torch.inference_mode()
def read_router(
    block: Any, weight: Tensor, bias: Tensor | None = None, *, groups: Groups = ALL
) -> Router:
    """``block`` has ``experts``, and a ``bias`` for each one. Raises NoNative."""
    rows = torch.randn(ROWS, weight.shape[1], generator=torch.Generator().manual_seed(0))
    index, shares = _asked(block, rows)
    given = torch.zeros(ROWS, len(weight)).scatter(1, index, shares.float())
    added = None if bias is None else bias.detach().float().flatten()
    for router in _candidates(weight, added, index.shape[1], groups):
        found = shares_of(router, rows)
        scale = float(given.sum() / found.sum())
        if torch.allclose(given, found * scale, rtol=MOST_ERROR, atol=MOST_ERROR / len(weight)):
            scale = 1.0 if abs(scale - 1) < MOST_ERROR else scale
            return replace(router, rule=replace(router.rule, scale=scale))
    raise NoNative("it chooses its experts in a way that they do not know")


def shares_of(router: Router, rows: Tensor) -> Tensor:
    """[rows, experts]: how much of each counts, 0 of those that are not chosen."""
    rule = router.rule
    logits = rows @ router.weight.float().T
    if router.bias is not None:
        logits = logits + router.bias
    scores = logits.sigmoid() if rule.sigmoid else logits.softmax(-1)
    liked = scores if router.preference is None else scores + router.preference
    if rule.allowed < rule.groups:
        each = liked.view(len(rows), rule.groups, -1)
        best = each.topk(2).values.sum(-1).topk(rule.allowed).indices
        kept = torch.zeros(len(rows), rule.groups).scatter(1, best, 1.0).bool()
        liked = each.masked_fill(~kept[..., None], -torch.inf).flatten(1)
    index = liked.topk(rule.chosen).indices
    shares = torch.zeros_like(scores).scatter(1, index, scores.gather(1, index))
    return shares / shares.sum(-1, True).clamp_min(LEAST) if rule.normalised else shares


def _candidates(
    weight: Tensor, added: Tensor | None, chosen: int, groups: Groups
) -> abc.Iterator[Router]:
    places = [(added, None), (None, added)] if added is not None else [(None, None)]
    for both in product((False, True), (True, False), {ALL: None, groups: None}, places):
        sigmoid, normalised, grouped, (bias, preference) = both
        rule = Rule(len(weight), chosen, sigmoid, normalised, *grouped)
        yield Router(rule, weight, bias, preference)


class _Asked(nn.Module):
    """In the place of experts."""

    def forward(self, hidden: Tensor, index: Tensor, shares: Tensor) -> Tensor:
        self.asked = index, shares
        return torch.zeros_like(hidden)


def _asked(block: Any, rows: Tensor) -> tuple[Tensor, Tensor]:
    """What it asks of its experts for ``rows``, in float32: which of them, and their shares."""
    experts, asked = block.experts, _Asked()
    block.experts = asked
    try:
        with in_float32(block):
            block(rows[None])
    finally:
        block.experts = experts
    return asked.asked
