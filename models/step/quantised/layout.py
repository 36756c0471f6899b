"""How checkpoints spread a weight over tensors: codes, and what tells their numbers."""

from __future__ import annotations

from collections import abc
from dataclasses import dataclass

import torch
from torch import Tensor

from models.step.grouped import GroupedWeight

# The tensors of one weight, by how their names end; and what they come to, exactly.
Parts = abc.Mapping[str, Tensor]
Stored = Tensor | GroupedWeight
FLOATS, BYTES, WORDS = (
    frozenset({"F8_E4M3", "F8_E5M2"}),
    frozenset({"I8", "U8"}),
    frozenset({"I32"}),
)
BLOCK = (128, 128)  # of scales, where a configuration tells of none


@dataclass(frozen=True, slots=True)
class Layout:
    """One way. The name of a weight's codes ends with ``codes``, its own with ``weight``."""

    codes: str
    kinds: frozenset[str]  # what type the codes are of, as files of safetensors name it
    needed: tuple[str, ...]  # endings of the tensors that must be beside them
    read: abc.Callable[[Parts], Stored]
    optional: tuple[str, ...] = ()
    weight: str = ".weight"

    def fits(self, name: str, kind: str) -> bool:
        return kind in self.kinds and name.endswith(self.codes)

    def tensors(self, name: str, present: abc.Container[str]) -> dict[str, str]:
        """By their endings, the names of all that the weight with the codes ``name`` is read from.

        Raises KeyError with the name of one that is missing.
        """
        stem = name.removesuffix(self.codes)
        for ending in self.needed:
            if stem + ending not in present:
                raise KeyError(stem + ending)
        found = (end for end in self.optional if stem + end in present)
        return {end: stem + end for end in (self.codes, *self.needed, *found)}


@dataclass(frozen=True, slots=True)
class Format:
    """``layouts`` are tried in order. Tensors that end with ``unread`` serve other arithmetic."""

    name: str
    layouts: tuple[Layout, ...]
    unread: tuple[str, ...] = ()

    @property
    def beside(self) -> tuple[str, ...]:
        """Endings of all tensors that are no weights."""
        each = (end for layout in self.layouts for end in (*layout.needed, *layout.optional))
        return (*each, *self.unread)


def spread(grid: Tensor, shape: torch.Size, block: abc.Sequence[int] | None = None) -> Tensor:
    """``grid``, scales or zeros of a weight of ``shape``, as what can multiply the weight.

    It has a number for each ``block``, the last of them smaller. Without ``block`` these are of
    ``BLOCK`` where there are so many, or it has one for all, for each row or column, or for groups
    of equal size of each row. Raises ValueError if it is none of these.
    """
    told = "" if block is None else f" in blocks of {list(block)}"
    objection = f"scales {list(grid.shape)} do not fit weights {list(shape)}{told}"
    grid = grid.reshape(*grid.shape, *[1] * (len(shape) - grid.ndim))
    if grid.ndim != len(shape) or grid.ndim < 2:
        raise ValueError(objection)
    if block is None and _in_blocks(grid, shape, BLOCK):
        block = BLOCK
    if not (_in_rows(grid, shape) if block is None else _in_blocks(grid, shape, block)):
        raise ValueError(objection)
    for axis in (-2, -1):
        count, size = grid.shape[axis], shape[axis]
        if count not in (1, size):
            length = size // count if block is None else block[axis]
            grid = grid.repeat_interleave(length, axis).narrow(axis, 0, size)
    return grid


def _in_blocks(grid: Tensor, shape: torch.Size, block: abc.Sequence[int]) -> bool:
    return all(-(-shape[axis] // block[axis]) == grid.shape[axis] for axis in (-2, -1))


def _in_rows(grid: Tensor, shape: torch.Size) -> bool:
    rows, columns = grid.shape[-2:]
    if rows == shape[-2]:
        return shape[-1] % columns == 0
    return rows == 1 and columns in (1, shape[-1])


def numbers(scales: Tensor) -> Tensor:
    """As float32. Bytes are exponents of 2, 127 of which mean 0."""
    exponents = scales.dtype == torch.uint8
    return (scales.view(torch.float8_e8m0fnu) if exponents else scales).float()


def unpacked(words: Tensor, bits: int) -> Tensor:
    """The codes that the integers along the last axis hold, the lowest bits first; as uint8."""
    octets = words.clone(memory_format=torch.contiguous_format).view(torch.uint8)
    shifts = torch.arange(0, 8, bits, dtype=torch.uint8)
    codes: Tensor = (octets[..., None] >> shifts) & (2**bits - 1)
    return codes.flatten(-2)
