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
    codes of up to 4 bits stay what they are. Raises ValueError where shapes do not fit each other.
    """
    outputs, inputs = codes.shape
    groups = -(-inputs // max(1, group))
    for name, values in (("scales", scales), ("zero points", zeros)):
        if values.shape != (outputs, groups):
            raise ValueError(
                f"{name} {list(values.shape)} do not fit weights {list(codes.shape)} in"
                f" groups of {group}"
            )
    if places is not None and (places.shape != (inputs,) or not _within(places, groups)):
        raise ValueError(f"groups of inputs {list(places.shape)} do not fit {inputs} in {groups}")
    scales, zeros = scales.float().contiguous(), zeros.float().contiguous()
    in_order = torch.arange(inputs) // group
    ordered = places is None or torch.equal(places, in_order)
    if ordered and bits <= CODE_BITS:
        return GroupedWeight(codes.contiguous(), scales, zeros, group)
    columns = in_order if places is None else places
    return (codes - zeros[:, columns]).mul_(scales[:, columns])


def _within(places: Tensor, groups: int) -> bool:
    return int(places.min()) >= 0 and int(places.max()) < groups
