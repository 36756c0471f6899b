"""Small values to the device and back, without waiting for it."""

from __future__ import annotations

from collections import abc

import torch
from torch import Tensor


def to_device(
    values: abc.Sequence[float], device: torch.device, dtype: torch.dtype = torch.int64
) -> Tensor:
    """A one-dimensional tensor of ``values``; through pinned memory where that is faster."""
    if device.type != "cuda":
        return torch.tensor(values, dtype=dtype, device=device)
    return torch.tensor(values, dtype=dtype, pin_memory=True).to(device, non_blocking=True)


def to_host(values: Tensor) -> Tensor:
    """A copy that is complete once the device has done all that it was asked before."""
    if not values.is_cuda:
        return values
    host = torch.empty(values.shape, dtype=values.dtype, pin_memory=True)
    return host.copy_(values, non_blocking=True)
