"""Scores against torch's own log-softmax."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from models.request import SamplingParams
from models.schedule.sequence import Chunk, Scores
from models.step.native.rows import RowKernels, row_kernels
from models.step.scores import Scoring
from tests.models.step.driving import sequence

VOCAB = 50


def logits(rows: int, dtype: torch.dtype = torch.float32) -> Tensor:
    values = torch.randn(rows, VOCAB, generator=torch.Generator().manual_seed(rows)) * 3
    return values.to(dtype)


def chunk(
    logprobs: int | None = None,
    *,
    targets: tuple[int, ...] = (),
    prompt_logprobs: int | None = None,
    samples: bool = True,
) -> Chunk:
    wish = SamplingParams(logprobs=logprobs, prompt_logprobs=prompt_logprobs)
    owner = sequence([0] * 9, wish)
    return Chunk(owner, 0, 4, samples, (0,) * 4, False, 0, (0,), None, targets=targets)


def scores(chunks: list[Chunk], values: Tensor, prompt: Tensor, tokens: list[int]) -> list[Scores]:
    by_torch = read(chunks, values, prompt, tokens, None)
    if kernels := row_kernels(torch.device("cpu")):
        agree(read(chunks, values, prompt, tokens, kernels), by_torch)
    return by_torch


def read(
    chunks: list[Chunk],
    values: Tensor,
    prompt: Tensor,
    tokens: list[int],
    kernels: RowKernels | None,
) -> list[Scores]:
    scored = Scoring(chunks, values, prompt, kernels).scored(torch.tensor(tokens))
    return [] if scored is None else scored.read()


def expected(row: Tensor, token: int, top: int) -> Scores:
    logprobs = row.float().log_softmax(-1)
    best = logprobs.topk(top)
    return Scores(
        float(logprobs[token]),
        int((logprobs > logprobs[token]).sum()) + 1,
        tuple(zip(best.indices.tolist(), best.values.tolist(), strict=True)),
    )


def agree(ours: list[Scores], theirs: list[Scores]) -> None:
    assert len(ours) == len(theirs)
    for one, other in zip(ours, theirs, strict=True):
        assert one.logprob == pytest.approx(other.logprob, abs=1e-5)
        assert one.rank == other.rank
        assert in_order(one) == in_order(other)
        values = [value for _, value in other.top]
        assert [value for _, value in one.top] == pytest.approx(values, abs=1e-5)


def in_order(scores: Scores) -> list[int]:
    """The likeliest tokens; equals, which may come in any order, by their ids."""
    return [token for token, _ in sorted(scores.top, key=lambda one: (-one[1], one[0]))]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_sampled_tokens_of_those_that_ask(dtype: torch.dtype) -> None:
    values = logits(4, dtype)
    asked = [chunk(None), chunk(3), chunk(0), chunk(20)]
    found = scores(asked, values, logits(0), [1, 2, 3, 4])
    agree(found, [expected(values[i], i + 1, top) for i, top in [(1, 3), (2, 0), (3, 20)]])


def test_targets_come_before_the_token_that_their_chunk_samples() -> None:
    values, prompt = logits(2), logits(5)
    first = chunk(1, targets=(7, 8), prompt_logprobs=2)
    middle = chunk(targets=(9, 10, 11), prompt_logprobs=0, samples=False)
    found = scores([first, middle, chunk(2)], values, prompt, [5, 6])
    targets = [expected(prompt[i], 7 + i, 2 if i < 2 else 0) for i in range(5)]
    ends = [expected(values[0], 5, 1), expected(values[1], 6, 2)]
    agree(found, [*targets[:2], ends[0], *targets[2:], ends[1]])


def test_nobody_asks() -> None:
    assert scores([chunk(), chunk()], logits(2), logits(0), [1, 2]) == []


def test_what_the_sampler_changes_afterwards_does_not_matter() -> None:
    values = logits(1)
    before = values.clone()
    scoring = Scoring([chunk(2)], values, logits(0))
    values.fill_(0)
    scored = scoring.scored(torch.tensor([3]))
    assert scored is not None
    agree(scored.read(), [expected(before[0], 3, 2)])


def test_likelihood_is_exactly_that_of_the_likeliest_for_a_greedy_token() -> None:
    """Scoring by multiple choice asks whether they are equal."""
    values = logits(6)
    greedy = values.argmax(-1).tolist()
    for one in scores([chunk(1)] * 6, values, logits(0), greedy):
        assert (one.rank, one.logprob) == (1, one.top[0][1])


def test_more_alternatives_than_tokens() -> None:
    values = torch.randn(1, 3)
    (one,) = scores([chunk(20)], values, torch.empty(0, 3), [0])
    assert len(one.top) == 3
