"""Finds operations whose result, or whose shape, the host must wait for the device to know.

It sees every operation that is dispatched, so it works without a device: on a CPU nothing is
waited for, but the same code would on CUDA.
"""

from __future__ import annotations

from collections import abc
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

aten = torch.ops.aten
WAITING = {
    aten._local_scalar_dense.default,  # item, int, bool, `if` over a tensor
    aten.nonzero.default,
    aten.masked_select.default,
    aten.equal.default,
    aten.bincount.default,
    aten._unique2.default,
    aten.unique_dim.default,
    aten.unique_consecutive.default,
}
INDEXING = {aten.index.Tensor, aten.index_put.default, aten.index_put_.default}
COPIES = {aten._to_copy.default, aten.copy_.default}


class Waits(RuntimeError):
    """The host would wait for the device."""


class WithoutWaiting(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Within it, an operation that waits raises ``Waits``; what is left runs as usual."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        if reason := objection(func, args, kwargs):
            raise Waits(f"{func} {reason}")
        if func.namespace == "aten":  # in inference mode, operations made of others come whole
            with self:
                made = func.decompose(*args, **kwargs)
            if made is not NotImplemented:
                return made
        return func(*args, **kwargs)


def objection(func: Any, args: tuple[Any, ...], kwargs: abc.Mapping[str, Any]) -> str:
    """Why this call waits for the device; empty if it does not."""
    if func in WAITING:
        return "waits for the device"
    if func is aten.repeat_interleave.Tensor and kwargs.get("output_size") is None:
        return "waits to know how long its result is"
    if func in INDEXING and _counts(args):
        return "with a mask waits to know how many are set"
    if func in COPIES and _crosses(func, args, kwargs):
        return "between devices waits for the copy"
    return ""


def _counts(args: tuple[Any, ...]) -> bool:
    """By a mask. A single value is filled in where it is set, however many that are."""
    masks = [i for i in args[1] if isinstance(i, Tensor) and i.dtype in (torch.bool, torch.uint8)]
    return bool(masks) and not (len(args) > 2 and args[2].numel() == 1)


def _crosses(func: Any, args: tuple[Any, ...], kwargs: abc.Mapping[str, Any]) -> bool:
    if func is aten.copy_.default:
        source, target = args[1].device, args[0].device
        waits = not (args[2] if len(args) > 2 else kwargs.get("non_blocking", False))
    else:
        source, target = args[0].device, torch.device(kwargs.get("device") or args[0].device)
        waits = not kwargs.get("non_blocking", False)
    return waits and source.type != target.type
