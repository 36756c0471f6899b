"""A model's weights in float32 for a while, where rounding hides nothing.

In half precision single tokens may go to other experts than before, and then all after them differ.
"""

from __future__ import annotations

from collections import abc
from contextlib import contextmanager
from itertools import chain

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from models.step.host import available_memory

HALF = (torch.bfloat16, torch.float16)


def can_be_exact(model: PreTrainedModel) -> bool:
    """Whether it is held in half precision, and there is room for twice as much."""
    more = sum(tensor.nbytes for tensor in _halves(model))
    if model.device.type == "cuda":
        return 0 < more < torch.cuda.mem_get_info(model.device)[0]
    return 0 < more < available_memory()


@contextmanager
def in_float32(model: nn.Module) -> abc.Iterator[None]:
    """Within it, all that the model holds in half precision is float32, with the same values."""
    halves = [(tensor, tensor.dtype) for tensor in _halves(model)]
    try:
        for tensor, _ in halves:
            tensor.data = tensor.data.float()
        yield
    finally:
        for tensor, dtype in halves:
            tensor.data = tensor.data.to(dtype)


def _halves(model: nn.Module) -> abc.Iterator[Tensor]:
    every: abc.Iterator[Tensor] = chain(model.parameters(), model.buffers())
    return (tensor for tensor in every if tensor.dtype in HALF)
