"""Small values to the device and back, without waiting for it."""

from __future__ import annotations

from collections import abc
from functools import cache

import numpy
import torch
from torch import Tensor

Numbers = abc.Sequence[float]
Parts = abc.Sequence[tuple[Numbers, torch.dtype]]
ALIGNMENT = 8  # bytes, of the widest type
NUMPY = {
    torch.int64: numpy.int64,
    torch.int32: numpy.int32,
    torch.float64: numpy.float64,
    torch.float32: numpy.float32,
}


def to_device(values: Numbers, device: torch.device, dtype: torch.dtype = torch.int64) -> Tensor:
    """A one-dimensional tensor of ``values``; through pinned memory where that is faster."""
    if device.type == "cpu":
        return on_host(values, dtype)
    if device.type != "cuda":
        return on_host(values, dtype).to(device)
    return staged(values, dtype).to(device, non_blocking=True)


def on_host(values: Numbers, dtype: torch.dtype = torch.int64) -> Tensor:
    """The same on the host, by way of numpy: it reads a list in a fifth of torch's time."""
    return torch.from_numpy(numpy.array(values, NUMPY[dtype]))


def staged(values: Numbers, dtype: torch.dtype = torch.int64) -> Tensor:
    """On the host, in memory that copies without waiting; reused only once they are done."""
    return torch.tensor(values, dtype=dtype, pin_memory=can_pin())


def bytes_to_device(values: bytes, device: torch.device) -> Tensor:
    """uint8 [len(values)]."""
    given = torch.frombuffer(bytearray(values), dtype=torch.uint8)
    if device.type != "cuda":
        return given.to(device)
    host = torch.empty(given.shape, dtype=torch.uint8, pin_memory=can_pin())
    return host.copy_(given).to(device, non_blocking=True)


def to_device_together(parts: Parts, device: torch.device) -> list[Tensor]:
    """``to_device`` of each part, but as one copy."""
    if device.type != "cuda":
        return [to_device(values, device, dtype) for values, dtype in parts]
    return unpack(pack(parts).to(device, non_blocking=True), parts)


def pack(parts: Parts) -> Tensor:
    """All parts as bytes on the host, in memory that copies without waiting."""
    places = [*_places(parts)]
    end = places[-1].stop if places else 0
    packed = torch.empty(end, dtype=torch.uint8, pin_memory=can_pin())
    for place, (values, dtype) in zip(places, parts, strict=True):
        packed[place].view(dtype).copy_(torch.tensor(values, dtype=dtype))
    return packed


def unpack(packed: Tensor, parts: Parts) -> list[Tensor]:
    """Views of ``pack(parts)``, wherever that is now."""
    dtypes = [dtype for _, dtype in parts]
    return [packed[p].view(dtype) for p, dtype in zip(_places(parts), dtypes, strict=True)]


def to_host(values: Tensor) -> Tensor:
    """A copy that is complete once the device has done all that it was asked before."""
    if not values.is_cuda:
        return values
    host = torch.empty(values.shape, dtype=values.dtype, pin_memory=can_pin())
    return host.copy_(values, non_blocking=True)


@cache
def can_pin() -> bool:
    return torch.cuda.is_available()


def _places(parts: Parts) -> abc.Iterator[slice]:
    """The bytes of each part, one behind the other."""
    start = 0
    for values, dtype in parts:
        stop = start + len(values) * dtype.itemsize
        yield slice(start, stop)
        start = -(-stop // ALIGNMENT) * ALIGNMENT
