"""What grammars allow, applied to the rows of a step: one operation for all of them."""

from __future__ import annotations

from collections import abc
from concurrent.futures import Future

import torch
from torch import Tensor

from models.schedule.sequence import Ruling
from models.step.transfer import bytes_to_device, to_device


def restrict(logits: Tensor, rulings: abc.Sequence[Future[Ruling] | None]) -> None:
    """Leaves in each row of ``logits`` [S, vocabulary] that has a ruling only what it allows.

    Waits for the rulings. Where nothing that is allowed is left, because of stops that
    ``min_tokens`` forbids or the like, the grammar wins: all that it allows is equally likely.
    """
    rows = [row for row, ruling in enumerate(rulings) if ruling is not None]
    if not rows:
        return
    packed = [ruling.result().allowed for ruling in rulings if ruling is not None]
    allowed = _unpack(packed, logits.device)[:, : logits.shape[1]]
    index = to_device(rows, logits.device)
    chosen = logits[index].masked_fill_(~allowed, float("-inf"))
    empty = chosen.isneginf().all(-1, keepdim=True)
    logits[index] = torch.where(empty & allowed, 0.0, chosen)


def _unpack(packed: list[bytes], device: torch.device) -> Tensor:
    """bool [rows, 8 * bytes]: the bits of each row, lowest first."""
    joined = bytes_to_device(b"".join(packed), device)
    shifts = torch.arange(8, dtype=torch.uint8, device=device)
    bits = (joined[:, None] >> shifts) & 1
    return bits.view(len(packed), -1).bool()
