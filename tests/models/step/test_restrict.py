from __future__ import annotations

import math
from concurrent.futures import Future
from dataclasses import replace
from typing import Any

import pytest
import torch

from models.request import SamplingParams
from models.schedule.sequence import Ruling
from models.step.restrict import restrict
from tests.models.step.sampling import chunk, logits, sample

VOCAB = 300


def ruling(*tokens: int) -> Future[Ruling]:
    bits = bytearray(-(-VOCAB // 8))
    for token in tokens:
        bits[token // 8] |= 1 << token % 8
    done: Future[Ruling] = Future()
    done.set_result(Ruling(bytes(bits)))
    return done


def constrained(sampling: SamplingParams, *tokens: int, **rest: Any) -> Any:
    return replace(chunk(sampling, **rest), ruling=ruling(*tokens))


def test_only_what_is_allowed_is_left_and_other_rows_stay() -> None:
    values = logits(3, VOCAB)
    changed = values.clone()
    restrict(changed, [None, ruling(0, 7, 8, 299), None])
    assert torch.equal(changed[[0, 2]], values[[0, 2]])
    finite = changed[1].isfinite().nonzero().flatten().tolist()
    assert finite == [0, 7, 8, 299]
    assert torch.equal(changed[1, finite], values[1, finite])


def test_without_rulings_nothing_changes() -> None:
    values = logits(2, VOCAB)
    changed = values.clone()
    restrict(changed, [None, None])
    assert torch.equal(changed, values)


def test_where_nothing_allowed_is_left_the_grammar_wins() -> None:
    values = torch.full((1, VOCAB), -math.inf)
    values[0, 5] = 1.0
    restrict(values, [ruling(9, 10)])
    assert values[0].isfinite().nonzero().flatten().tolist() == [9, 10]


@pytest.mark.parametrize("wish", [{"temperature": 0}, {"top_p": 0.5}, {"top_k": 3}, {}])
def test_whatever_else_is_asked_a_token_is_allowed(wish: dict[str, Any]) -> None:
    sampling = SamplingParams(**wish, logit_bias={3: 100.0}, repetition_penalty=1.2)
    values = logits(1, VOCAB)
    drawn = {sample(values, constrained(sampling, 11, 12, seed=s))[0] for s in range(40)}
    assert drawn <= {11, 12}


def test_min_tokens_yields_to_an_answer_that_can_only_end() -> None:
    sampling = SamplingParams(min_tokens=50)
    stop = frozenset({20})
    assert sample(logits(1, VOCAB), constrained(sampling, 20, stop_ids=stop)) == [20]
    assert sample(logits(1, VOCAB), constrained(sampling, 20, 21, stop_ids=stop)) == [21]


def test_neighbours_do_not_change_a_row() -> None:
    values = logits(4, VOCAB)
    wish = SamplingParams(temperature=0.8, top_p=0.9)
    free = [chunk(wish, seed=s) for s in range(3)]
    alone = [sample(values[[i]], one)[0] for i, one in enumerate(free)]
    together = sample(values, *free, constrained(wish, 1, 2, 3, seed=9))
    assert together[:3] == alone
    assert sample(values[[3]], constrained(wish, 1, 2, 3, seed=9)) == together[3:]
