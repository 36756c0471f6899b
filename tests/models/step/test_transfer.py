from __future__ import annotations

import torch

from models.step.transfer import pack, unpack


def test_parts_of_all_types_travel_together() -> None:
    parts: list[tuple[list[float], torch.dtype]] = [
        ([1, 2, 3], torch.int32),
        ([2**40, -1], torch.int64),
        ([], torch.int64),
        ([0.5], torch.float32),
        ([0.25, 1.5], torch.float64),
    ]
    received = unpack(pack(parts), parts)
    assert [part.tolist() for part in received] == [values for values, _ in parts]
    assert [part.dtype for part in received] == [dtype for _, dtype in parts]
