"""The compiled kernels over rows against torch's operators, on a real vocabulary's size."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from models.step.draw import NO_TOP_K, Filters, draw, draw_filtered
from models.step.native.rows import GREEDY, RowKernels, RowWish, row_kernels

VOCAB, ROWS = 49_157, 64  # not made of whole vectors


@pytest.fixture(scope="module")
def kernels() -> RowKernels:
    found = row_kernels(torch.device("cpu"))
    if found is None:
        pytest.skip("no compiled kernels here")
    return found


def logits() -> Tensor:
    """A few likely tokens over a long tail, equals among them."""
    generator = torch.Generator().manual_seed(0)
    values = torch.randn(ROWS, VOCAB, generator=generator) * 2.5
    likely = torch.randint(0, VOCAB, (ROWS, 30), generator=generator)
    boost = torch.rand(ROWS, 30, generator=generator) * 14
    values = values.scatter_add(1, likely, boost)
    values[:8] = (values[:8] * 2).round()
    return values


WISHES = {
    "temperature": RowWish(0, 1, 1, 0, 0),
    "top_p": RowWish(0, 0.9, 1, 0, 0),
    "hot top_p": RowWish(0, 0.999, 1.5, 0, 0),
    "all but nothing by top_p": RowWish(0, 1 - 1e-13, 1, 0, 0),
    "top_k": RowWish(0, 1, 1, 0, 50),
    "large top_k": RowWish(0, 1, 1, 0, 5000),
    "min_p": RowWish(0, 1, 1, 0.02, 0),
    "all": RowWish(0, 0.9, 0.7, 0.001, 40),
}


def by_torch(values: Tensor, wishes: list[RowWish]) -> Tensor:
    wish = wishes[0]
    probabilities = (values / wish.temperature).softmax(-1)
    uniforms = torch.tensor([one.uniform for one in wishes], dtype=torch.float64)[:, None]
    if (wish.top_p, wish.min_p, wish.top_k) == (1, 0, 0):
        return draw(probabilities, uniforms)
    shape = (len(values), 1)
    filters = Filters(
        torch.full(shape, wish.top_k or NO_TOP_K),
        torch.full(shape, wish.top_p, dtype=torch.float64),
        torch.full(shape, wish.min_p),
    )
    return draw_filtered(probabilities, uniforms, filters)


@pytest.mark.parametrize("wish", WISHES.values(), ids=list(WISHES))
def test_the_same_numbers_draw_the_same_tokens(kernels: RowKernels, wish: RowWish) -> None:
    """But where rounding decides, and among equals, whose order torch does not tell."""
    values = logits()
    numbers = torch.rand(ROWS, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    wishes = [wish._replace(uniform=number) for number in numbers.tolist()]
    ours, theirs = kernels.sample(values, wishes), by_torch(values, wishes)
    alike = ours == theirs
    assert alike[8:].sum() >= 0.85 * (ROWS - 8)
    chosen = values.gather(1, torch.stack((ours, theirs), 1))
    assert torch.allclose(chosen[:8, 0], chosen[:8, 1])


@pytest.mark.parametrize("wish", [GREEDY, *WISHES.values()], ids=["greedy", *WISHES])
def test_a_row_is_the_same_alone_and_in_company(kernels: RowKernels, wish: RowWish) -> None:
    values = logits()
    wishes = [wish._replace(uniform=row / ROWS) for row in range(ROWS)]
    together = kernels.sample(values, wishes)
    alone = [kernels.sample(values[i : i + 1], wishes[i : i + 1]) for i in range(ROWS)]
    assert torch.equal(torch.cat(alone), together)


@pytest.mark.parametrize("wish", [RowWish(0, 0.25, 1, 0, 0), RowWish(0, 1, 1, 0, 100)])
def test_equals_are_drawn_in_the_vocabularys_order(kernels: RowKernels, wish: RowWish) -> None:
    values = torch.full((3, 400), 0.5)
    tokens = kernels.sample(values, [wish._replace(uniform=u) for u in (0, 0.5, 1 - 1e-16)])
    assert tokens.tolist() == [0, 50, 99]


def test_the_first_of_the_largest_is_greedy(kernels: RowKernels) -> None:
    values = logits().round()
    values[3] = float("nan")
    values[4, 7] = float("inf")
    tokens = kernels.sample(values, [GREEDY] * ROWS)
    keep = [row for row in range(ROWS) if row != 3]
    assert torch.equal(tokens[keep], values.argmax(-1)[keep])
    assert 0 <= tokens[3] < VOCAB


def test_scores_are_those_of_a_softmax(kernels: RowKernels) -> None:
    values = logits()[8:]
    tokens = torch.arange(len(values)) * 700
    logprobs, ids = kernels.score(values, tokens, 20)
    expected = values.double().log_softmax(-1)
    best = expected.topk(20)
    assert torch.equal(ids[:, 1:], best.indices)
    assert torch.allclose(logprobs[:, 1:].double(), best.values, atol=2e-5)
    chosen = expected.gather(1, tokens[:, None])
    assert torch.allclose(logprobs[:, :1].double(), chosen, atol=2e-5)
    assert torch.equal(ids[:, 0], (expected > chosen).sum(-1) + 1)
