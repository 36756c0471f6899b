from __future__ import annotations

import pytest
import torch

from models.step.transfer import NUMPY, pack, to_device, unpack


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


@pytest.mark.parametrize("dtype", NUMPY)
def test_values_of_each_type_arrive_as_torch_would_read_them(dtype: torch.dtype) -> None:
    for values in ([], [3, -1], (0.1, 2.5), [2**31 - 1]):
        sent = to_device(values, torch.device("cpu"), dtype)
        assert torch.equal(sent, torch.tensor(values, dtype=dtype))
        assert sent.dtype == dtype


def test_a_number_that_is_too_large_is_an_error() -> None:
    with pytest.raises(OverflowError):
        to_device([2**31], torch.device("cpu"), torch.int32)
