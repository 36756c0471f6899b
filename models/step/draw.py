"""Tokens from probabilities by inverse CDF: one uniform a row, each row on its own.

Every operation works row by row and in an order that the number of rows does not change, so a
row's token is the same alone and among neighbours, to the bit.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

STRIP = 128  # the whole vocabulary is summed in strips, so that only one is searched in order
SHORT = 16  # the strips in which the likeliest are looked for
TIERS = (256, 4096)  # likeliest tokens looked at before a row's whole vocabulary is sorted
NARROW = 256  # a top_k that is no larger needs no row sorted whole, on any device
NO_TOP_K = 2**31 - 1


@dataclass(frozen=True, slots=True)
class Filters:
    """What restricts each row; all [rows, 1] on the probabilities' device."""

    top_k: Tensor  # int64; NO_TOP_K is off
    top_p: Tensor  # float64; 1 is off
    min_p: Tensor  # float32; 0 is off

    def rows(self, index: Tensor) -> Filters:
        return Filters(self.top_k[index], self.top_p[index], self.min_p[index])


def draw_from(logits: Tensor) -> Tensor:
    """Tokens [rows] by the filters that take most memory, from [rows, vocabulary] float32."""
    half = torch.full((len(logits), 1), 0.5, device=logits.device, dtype=torch.float64)
    filters = Filters(torch.full_like(half, NO_TOP_K, dtype=torch.int64), half, half.float())
    return draw_filtered((logits / half.float()).softmax(-1), half, filters)


def draw(probabilities: Tensor, uniforms: Tensor) -> Tensor:
    """From all of [rows, vocabulary] float32; ``uniforms`` [rows, 1] float64. Tokens [rows]."""
    rows, size = probabilities.shape
    padded = F.pad(probabilities, (0, -size % STRIP)) if size % STRIP else probabilities
    strips = padded.view(rows, -1, STRIP)
    sums = strips.sum(-1).double().cumsum(-1)
    target = uniforms * sums[:, -1:]
    strip = _search(sums, target)
    before = F.pad(sums, (1, 0)).gather(1, strip)
    inside = strips.gather(1, strip[..., None].expand(-1, 1, STRIP)).squeeze(1)
    place = _search(inside.double().cumsum(-1), target - before)
    return (strip * STRIP + place).squeeze(1)


def draw_filtered(
    probabilities: Tensor, uniforms: Tensor, filters: Filters, *, narrow: bool = False
) -> Tensor:
    """Like ``draw``, from each row's likeliest tokens that its filters let through.

    min_p and top_k cut first; top_p keeps the least set of what is left whose share reaches it.
    On a CPU a row is sorted only as far as its own cut needs; elsewhere asking how far that is
    would wait for the device, so rows are sorted whole. ``narrow``: no top_k is above ``NARROW``.
    """
    if probabilities.device.type != "cpu":
        return draw_likeliest(probabilities, uniforms, filters, NARROW if narrow else None)
    tokens = torch.empty(len(probabilities), dtype=torch.int64)
    left = torch.arange(len(probabilities))
    for tier in (*TIERS, probabilities.shape[1]):
        here = probabilities if len(left) == len(probabilities) else probabilities[left]
        ranked = _ranked(here, min(tier, probabilities.shape[1]))
        picked, enough = _pick(*ranked, uniforms[left], filters.rows(left))
        if ranked[0].shape[1] == probabilities.shape[1]:
            enough.fill_(True)
        tokens[left[enough]] = picked[enough]
        left = left[~enough]
        if not len(left):
            break
    return tokens


def draw_likeliest(
    probabilities: Tensor, uniforms: Tensor, filters: Filters, most: int | None = None
) -> Tensor:
    """``draw_filtered`` without waiting, where no filter lets more than ``most`` tokens through."""
    size = probabilities.shape[1]
    ranked = _ranked(probabilities, size if most is None else min(most, size))
    return _pick(*ranked, uniforms, filters)[0]


def _ranked(probabilities: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """The ``count`` largest of each row, falling, and their tokens."""
    rows, size = probabilities.shape
    if count == size:
        values, tokens = torch.sort(probabilities, dim=-1, descending=True, stable=True)
        return values, tokens
    if count * SHORT >= size:
        values, tokens = probabilities.topk(count)
        return values, tokens
    # They lie in the strips with the largest of all strips' largest.
    if size % SHORT:
        probabilities = F.pad(probabilities, (0, -size % SHORT), value=-1.0)
    strips = probabilities.view(rows, -1, SHORT)
    best = strips.amax(-1).topk(count).indices
    near = strips.gather(1, best[..., None].expand(-1, -1, SHORT)).flatten(1)
    values, place = near.topk(count)
    return values, best.gather(1, place // SHORT) * SHORT + place % SHORT


def _pick(
    values: Tensor, tokens: Tensor, uniforms: Tensor, filters: Filters
) -> tuple[Tensor, Tensor]:
    """Tokens [rows], and whether ``values`` reached past the last one that may be drawn."""
    rank = torch.arange(values.shape[1], device=values.device)
    allowed = (rank < filters.top_k) & (values >= filters.min_p * values[:, :1])
    masses = (values * allowed).double()
    sums = masses.cumsum(-1)
    cut = ~allowed[:, -1:] | (filters.top_k <= values.shape[1])
    unrestricted = (filters.top_k == NO_TOP_K) & (filters.min_p == 0)
    total = torch.where(cut, sums[:, -1:], 1.0)
    kept = allowed & (sums - masses < filters.top_p * total)
    enough = cut | (unrestricted & ~kept[:, -1:])
    sums = (masses * kept).cumsum(-1)
    place = _search(sums, uniforms * sums[:, -1:])
    return tokens.gather(1, place).squeeze(1), enough.squeeze(1)


def _search(sums: Tensor, target: Tensor) -> Tensor:
    """The first place in each row whose running sum exceeds its target; [rows, 1].

    Never past the last place that adds anything, whatever rounding did to the target.
    """
    place = (sums <= target).sum(-1, keepdim=True)
    return torch.minimum(place, (sums < sums[:, -1:]).sum(-1, keepdim=True))
