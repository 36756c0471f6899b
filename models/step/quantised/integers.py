"""Weights as whole numbers with scales and zeros for groups of an output's inputs."""

from __future__ import annotations

import torch
from torch import Tensor

from models.step.grouped import GroupedWeight
from models.step.quantised.layout import Stored

CODE_BITS = 4  # that a ``GroupedWeight`` has room for


def in_groups(
    codes: Tensor, scales: Tensor, zeros: Tensor, *, bits: int, group: int, places: Tensor | None
) -> Stored:
    """``scales * (codes - zeros)``; codes [outputs, inputs], the others [outputs, groups].

    ``places`` are the groups of the inputs, where these may not follow each other. If they do,
    codes of up to 4 bits stay what they are.
    """
    scales, zeros = scales.float().contiguous(), zeros.float().contiguous()
    in_order = torch.arange(codes.shape[1]) // group
    ordered = places is None or torch.equal(places, in_order)
    if ordered and bits <= CODE_BITS:
        return GroupedWeight(codes.contiguous(), scales, zeros, group)
    columns = in_order if places is None else places
    return (codes - zeros[:, columns]).mul_(scales[:, columns])
