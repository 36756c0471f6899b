"""A model's linear layers as the library reads them: where they lie, in the type they have."""

from __future__ import annotations

from collections import abc
from enum import IntEnum

import torch
from torch import Tensor

from models.step.grouped import ZERO_UNIT, GroupedWeight
from models.step.native.build import NoNative
from models.step.native.library import Weight
from models.step.native.linear import Rows

KINDS = {torch.float32: 0, torch.bfloat16: 1, torch.float16: 2}
CODES = 3
TOGETHER = (("q", "k"), ("gate", "up"))  # in one matrix
CODE_GROUP = 32  # inputs; a group of a checkpoint is one or several of them
SCALE_BITS = 0x1FFF  # that a scale may not have, as float32
MOST_ZERO = 31


class Held(IntEnum):
    """What becomes of them, but for codes of 4 bits, which stay what they are."""

    EXACT = 0  # bfloat16 where that loses nothing, else float32
    IN_PLACE = 1  # not copied: for a comparison
    INT8 = 2
    INT4 = 3


class Weights:
    """What the library was told of is alive for as long as this."""

    def __init__(self) -> None:
        self._tensors: list[Tensor] = []

    def linears(self, rows: abc.Mapping[str, Rows]) -> dict[str, Weight]:
        """Of half a layer. Raises NoNative as ``linear`` does, and if only one of two has codes."""
        made = {name: self.linear(own) for name, own in rows.items()}
        for one, other in TOGETHER:
            both = one in made and other in made
            if both and (made[one].kind == CODES) != (made[other].kind == CODES):
                raise NoNative(f"only one of its {one} and {other} has codes of 4 bits")
        return made

    def linear(self, rows: Rows) -> Weight:
        """Raises NoNative for codes that the kernels cannot hold as they are."""
        given = rows.weight
        bias = None if rows.bias is None else self.pointer(rows.bias.float())
        if isinstance(given, GroupedWeight):
            _require_known(given)
            return Weight(
                numbers=self.pointer(given.codes),
                scales=self.pointer(given.scales),
                zeros=self.pointer(given.zeros),
                bias=bias,
                kind=CODES,
                group=given.group,
            )
        numbers = given if given.dtype in KINDS else given.float()
        return Weight(numbers=self.pointer(numbers), bias=bias, kind=KINDS[numbers.dtype])

    def given(self, numbers: Tensor, bias: Tensor | None = None) -> Weight:
        """Rows as they lie, of as many numbers as the last size says; ``bias`` is float32."""
        self._tensors += [numbers] if bias is None else [numbers, bias]
        pointer = None if bias is None else bias.data_ptr()
        return Weight(numbers=numbers.data_ptr(), bias=pointer, kind=KINDS[numbers.dtype])

    def pointer(self, tensor: Tensor) -> int:
        self._tensors.append(tensor.contiguous())
        return self._tensors[-1].data_ptr()


def _require_known(weight: GroupedWeight) -> None:
    if weight.group % CODE_GROUP and weight.group < weight.codes.shape[1]:
        raise NoNative(
            f"its codes share scales by {weight.group} inputs, no multiple of {CODE_GROUP}"
        )
    units = weight.zeros * ZERO_UNIT
    if not torch.equal(units, units.round().clamp(0, MOST_ZERO * ZERO_UNIT)):
        raise NoNative("the zeros of its codes are not 256ths from 0 to 31")
    if (weight.scales.view(torch.int32) & SCALE_BITS).any():
        raise NoNative("the scales of its codes are of more than half precision")
