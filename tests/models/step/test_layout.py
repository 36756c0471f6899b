from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from models.step.layout import StepLayout
from models.step.placement import Span
from models.step.probe import ProbeSpan

CPU = torch.device("cpu")


def layout(spans: list[Span], block_size: int = 4) -> StepLayout:
    return StepLayout(spans, block_size, CPU, torch.float32)


def test_single_tokens_come_first_the_longest_sequence_first() -> None:
    made = layout(
        [
            ProbeSpan(0, 3, (0,)),
            ProbeSpan(5, 1, (1, 2)),
            ProbeSpan(9, 1, (3, 4, 5)),
            ProbeSpan(4, 2, (6, 7)),
        ]
    )
    assert made.order == [2, 1, 0, 3]
    assert made.starts == [2, 1, 0, 5]
    assert made.positions.tolist() == [9, 5, 0, 1, 2, 4, 5]
    assert made.cache_rows.tolist() == [5 * 4 + 1, 2 * 4 + 1, 0, 1, 2, 28, 29]


def test_a_ragged_step_tells_kernels_the_same() -> None:
    made = layout([ProbeSpan(2, 3, (4, 5)), ProbeSpan(8, 1, (1, 2, 3)), ProbeSpan(0, 1, (7,))])
    ragged = made.ragged
    assert made.order == [1, 2, 0]
    assert _plain(ragged.query_starts) == [0, 1, 2, 5]
    assert _plain(ragged.key_counts) == [9, 1, 5]
    assert _plain(ragged.block_table) == [[1, 2, 3], [7, 7, 7], [4, 5, 5]]
    assert (ragged.max_queries, ragged.max_keys) == (3, 9)


def _plain(tensor: Tensor) -> list[Any]:
    assert tensor.dtype == torch.int32
    values: list[Any] = tensor.tolist()
    return values
