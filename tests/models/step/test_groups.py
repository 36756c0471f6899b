from __future__ import annotations

import random

import pytest
import torch

from models.step.groups import split_by_width
from models.step.layout import StepLayout
from models.step.placement import Group, Span
from models.step.probe import ProbeSpan

CPU = torch.device("cpu")


def layout(spans: list[Span], block_size: int = 4) -> StepLayout:
    return StepLayout(spans, block_size, CPU, torch.float32)


def seen(group: Group, block_size: int) -> list[set[int] | None]:
    """For each query, the cache rows it attends to; None where the step's own keys are used."""
    count = group.queries.stop - group.queries.start
    if group.blocks is None:
        return [None] * count
    rows = (group.blocks[:, None] * block_size + torch.arange(block_size)).view(group.sequences, -1)
    rows = rows[:, group.keys]
    if group.mask is None:
        visible = torch.ones(count, rows.shape[1], dtype=torch.bool)
    else:
        visible = group.mask.reshape(count, -1) == 0
    owners = rows if group.sequences == count else rows.expand(count, -1)
    return [set(r[v].tolist()) for r, v in zip(owners, visible, strict=True)]


@pytest.mark.parametrize("window", [None, 1, 3, 4, 9])
def test_every_query_sees_exactly_its_past(window: int | None) -> None:
    draw = random.Random(0)
    for _ in range(50):
        blocks = draw.sample(range(200), 200)
        spans: list[Span] = []
        for _ in range(draw.randint(1, 6)):
            start, count = draw.choice([0, draw.randint(0, 30)]), draw.choice([1, 1, 5])
            spans.append(ProbeSpan(start, count, tuple(blocks.pop() for _ in range(12))))
        made = layout(spans)
        got = [rows for group in made.groups(window) for rows in seen(group, 4)]
        for rows, (span, position) in zip(got, _queries(made, spans), strict=True):
            first = 0 if window is None else max(0, position + 1 - window)
            past = range(first, position + 1)
            assert rows in (None, {span.blocks[p // 4] * 4 + p % 4 for p in past})
            assert rows is not None or span.start == 0


def _queries(made: StepLayout, spans: list[Span]) -> list[tuple[Span, int]]:
    ordered = [spans[i] for i in made.order]
    return [(s, p) for s in ordered for p in range(s.start, s.start + s.count)]


@pytest.mark.parametrize(("window", "masked"), [(None, False), (9, False), (3, True)])
def test_a_whole_prompt_needs_a_mask_only_for_its_window(window: int | None, masked: bool) -> None:
    (group,) = layout([ProbeSpan(0, 6, (0, 1))]).groups(window)
    assert group.causal != masked
    assert (group.mask is not None) == masked
    if group.mask is not None:
        past = torch.arange(6)[:, None] - torch.arange(6)
        assert torch.equal(group.mask == 0, (past >= 0) & (past < 3))


def test_sequences_of_equal_length_need_no_mask() -> None:
    (group,) = layout([ProbeSpan(6, 1, (0, 1)), ProbeSpan(6, 1, (2, 3))]).groups(None)
    assert group.mask is None
    assert group.keys == slice(0, 7)


def test_padding_is_bounded() -> None:
    assert split_by_width([50, 50, 50], 10, 10**6) == [slice(0, 3)]
    assert split_by_width([500, 2, 2, 2], 64, 10**6) == [slice(0, 1), slice(1, 4)]
    assert split_by_width([3, 2, 1], 64, 10**6) == [slice(0, 3)]
    assert split_by_width([], 64, 10**6) == []


def test_a_call_is_bounded_but_not_too_small() -> None:
    assert split_by_width([10] * 12, 64, 60) == [slice(0, 6), slice(6, 12)]
    assert split_by_width([100] * 6, 64, 60) == [slice(0, 4), slice(4, 6)]
