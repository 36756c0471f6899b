"""Token ids to try a model with."""

from __future__ import annotations

from collections import abc

import torch
from torch import Tensor


def ordinary_ids(vocab_size: int, lengths: abc.Iterable[int]) -> list[Tensor]:
    """Int64 [n] for each of ``lengths``, always the same: special ones tend to be first or last."""
    low, high = (100, min(vocab_size, 1000)) if vocab_size > 200 else (1, vocab_size)
    generator = torch.Generator().manual_seed(0)
    return [torch.randint(low, high, (n,), generator=generator) for n in lengths]
