from __future__ import annotations

import math
from collections import Counter
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from models.request import SamplingParams
from models.schedule.sequence import Chunk
from models.step.native.rows import row_kernels
from models.step.sampler import Sampler
from tests.models.step.driving import sequence
from tests.models.step.sampling import CPU, KERNELS, VOCAB, chunk, logits, sample


@pytest.fixture(autouse=True, params=["native", "torch"])
def _kernels(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """All hold for the compiled kernels and for torch's operators."""
    kernels = row_kernels(CPU) if request.param == "native" else None
    if request.param == "native" and kernels is None:
        pytest.skip("no compiled kernels here")
    monkeypatch.setitem(KERNELS, "chosen", kernels)


def test_no_temperature_is_greedy() -> None:
    values = logits(4)
    wish = SamplingParams(temperature=0, top_p=0.3, top_k=7)
    assert sample(values, *[chunk(wish)] * 4) == values.argmax(-1).tolist()


def test_a_top_p_of_nothing_is_greedy() -> None:
    values = logits(4)
    wish = SamplingParams(temperature=1.5, top_p=0)
    assert sample(values, *[chunk(wish, seed=s) for s in range(4)]) == values.argmax(-1).tolist()


def test_a_temperature_too_low_to_divide_by_is_greedy() -> None:
    values = logits(1)
    assert sample(values, chunk(SamplingParams(temperature=1e-30))) == [int(values.argmax())]


KINDS: dict[str, dict[str, Any]] = {
    "temperature": {"temperature": 0.7},
    "top_p": {"top_p": 0.6},
    "top_k": {"top_k": 4},
    "min_p": {"min_p": 0.2},
    "all at once": {"temperature": 1.4, "top_p": 0.8, "top_k": 9, "min_p": 0.02},
}


@pytest.mark.parametrize("wish", KINDS.values(), ids=KINDS)
def test_the_distribution_is_the_one_asked_for(wish: dict[str, Any]) -> None:
    """Over many seeds, each token comes as often as a naive reference says."""
    values, draws = logits(1, 40), 4000
    params = SamplingParams(**wish)
    tokens = sample(values.expand(draws, -1), *[chunk(params, seed=s) for s in range(draws)])
    expected = naive(values[0], params)
    counts = Counter(tokens)
    assert all(expected[token] > 0 for token in counts)
    for token in range(40):
        p = float(expected[token])
        assert abs(counts[token] / draws - p) < 5 * math.sqrt(p * (1 - p) / draws) + 1e-9


def naive(values: Tensor, params: SamplingParams) -> Tensor:
    """The distribution by a full sort and plain loops."""
    probabilities = (values.double() / params.temperature).softmax(-1)
    order = probabilities.argsort(descending=True).tolist()
    kept = [t for t in order if probabilities[t] >= params.min_p * probabilities[order[0]]]
    kept = kept[: params.top_k or None]
    mass, nucleus = 0.0, []
    total = float(sum(probabilities[t] for t in kept))
    for token in kept:
        if mass >= params.top_p * total:
            break
        nucleus.append(token)
        mass += float(probabilities[token])
    result = torch.zeros_like(probabilities)
    result[nucleus] = probabilities[nucleus] / mass
    return result


@pytest.mark.parametrize("top_p", [0.05, 0.5, 0.9, 0.999])
@pytest.mark.parametrize("scale", [0.01, 1.0, 6.0])
def test_however_far_a_row_must_be_sorted_the_nucleus_is_the_same(
    top_p: float, scale: float
) -> None:
    """Flat rows need the whole vocabulary, steep ones a few tokens: both obey the full sort."""
    vocab = 9000
    values = logits(3, vocab, scale)
    params = SamplingParams(top_p=top_p)
    for seed in range(20):
        tokens = sample(values, *[chunk(params, seed=seed)] * 3)
        for row, token in enumerate(tokens):
            probabilities = values[row].double().softmax(-1)
            above = float(probabilities[probabilities > probabilities[token]].sum())
            assert above <= top_p + 1e-4


def test_a_wide_top_k_is_exact_too() -> None:
    values = logits(1, 9000, 0.01)
    ranks = values[0].argsort(descending=True).argsort()
    for k in (255, 256, 257, 5000):
        params = SamplingParams(top_k=k)
        tokens = sample(values.expand(200, -1), *[chunk(params, seed=s) for s in range(200)])
        reached = max(int(ranks[token]) for token in tokens)
        assert 0.9 * k < reached < k


def test_seed_and_position_decide() -> None:
    values = logits(1, 1000, 0.5)
    wish = SamplingParams()
    once = sample(values, chunk(wish, seed=7, position=9))
    assert once == sample(values, chunk(wish, seed=7, position=9, slot=3))
    others = [sample(values, chunk(wish, seed=7, position=p)) for p in range(10, 20)]
    others += [sample(values, chunk(wish, seed=s, position=9)) for s in range(8, 18)]
    assert sum(other == once for other in others) <= 2


WISHES = [
    SamplingParams(temperature=0),
    SamplingParams(temperature=0.8),
    SamplingParams(temperature=1.5),
    SamplingParams(top_p=0.9),
    SamplingParams(top_p=0.999, temperature=2.0),
    SamplingParams(top_k=3),
    SamplingParams(min_p=0.05),
    SamplingParams(logit_bias={5: 3.0}),
    SamplingParams(frequency_penalty=1.0, presence_penalty=-0.5, repetition_penalty=1.2),
    SamplingParams(min_tokens=9, temperature=0),
]


def test_no_row_depends_on_its_neighbours() -> None:
    """To the bit: the same row alone, in any company, and at any place of the batch."""
    vocab = 5000
    values = logits(len(WISHES), vocab, 1.0)
    rows = [chunk(wish, seed=i, slot=i, stop_ids=frozenset({i})) for i, wish in enumerate(WISHES)]
    together = sample(values, *rows)
    backwards = sample(values.flip(0), *reversed(rows))
    alone = [sample(values[i : i + 1], rows[i])[0] for i in range(len(rows))]
    crowd = [
        sample(values[i].expand(33, -1), *(replace(row, slot=slot) for slot in range(33)))
        for i, row in enumerate(rows)
    ]
    assert together == backwards[::-1] == alone
    assert crowd == [[token] * 33 for token in together]


def test_logit_bias_moves_and_bans() -> None:
    values = logits(2)
    best = int(values[0].argmax())
    force = chunk(SamplingParams(temperature=0, logit_bias={17: 100.0}))
    ban = chunk(SamplingParams(temperature=0, logit_bias={best: -100.0}))
    assert sample(values[:1], force) == [17]
    assert sample(values[:1], ban) == [int(values[0].topk(2).indices[1])]


def test_stops_are_banned_until_enough_tokens_came() -> None:
    values = logits(1)
    best = int(values.argmax())
    wish = SamplingParams(temperature=0, min_tokens=2)
    stops = frozenset({best, VOCAB + 1})
    for position, banned in ((3, True), (4, True), (5, False)):
        token = sample(values, chunk(wish, prompt=3, position=position, stop_ids=stops))
        assert (token != [best]) == banned


def test_a_banned_token_never_comes_even_at_the_edge() -> None:
    values = torch.full((2000, VOCAB), -30.0)
    values[:, 3] = 0.0
    wish = SamplingParams(min_tokens=9)
    stops = frozenset(range(4, VOCAB))
    rows = [chunk(wish, seed=s, stop_ids=stops) for s in range(2000)]
    assert set(sample(values, *rows)) <= {0, 1, 2, 3}


PENALTIES = SamplingParams(
    temperature=0, presence_penalty=0.4, frequency_penalty=0.3, repetition_penalty=1.5
)


def penalised(values: Tensor, prompt: list[int], answer: list[int]) -> int:
    """The greedy token by a loop over the history."""
    changed = values.clone()
    for token in {*prompt, *answer}:
        positive = changed[token] > 0
        changed[token] = changed[token] / 1.5 if positive else changed[token] * 1.5
    for token, count in Counter(answer).items():
        changed[token] -= 0.3 * count + 0.4
    return int(changed.argmax())


@pytest.mark.parametrize("admitted_with", [1, 4, 6, 9])
def test_penalties_follow_the_whole_history(admitted_with: int) -> None:
    """History given at admission, then chunk by chunk, then token by token: all count once."""
    prompt = [1, 2, 2, 3, 4, 4]
    owner = sequence(prompt, PENALTIES)
    owner.tokens += [5, 6, 5]
    sampler = Sampler(4, 12, CPU, KERNELS["chosen"])
    values = logits(6, 12, 1.0)
    start, end = 0, admitted_with
    for row in values:
        tokens = owner.tokens[start:end]
        done = end == len(owner.tokens)
        history = tuple(owner.tokens[:end]) if start == 0 else None
        part = Chunk(owner, start, end - start, done, tuple(tokens), False, 2, (), history)
        sampler.observe([part], [1], torch.tensor([11, *tokens]))
        if done:
            token = sampler.sample(row[None].clone(), [part]).tolist()
            assert token == [penalised(row, prompt, owner.tokens[6:])]
            owner.tokens += token
        start, end = end, min(end + 4, len(owner.tokens))


def test_a_slot_starts_anew_with_its_next_sequence() -> None:
    sampler = Sampler(1, 12, CPU, KERNELS["chosen"])
    values = logits(1, 12, 1.0)
    for prompt in ([1, 2, 3], [4, 5]):
        owner = sequence(prompt, PENALTIES)
        part = Chunk(owner, 0, len(prompt), True, tuple(prompt), False, 0, (), tuple(prompt))
        sampler.observe([part], [0], torch.tensor(prompt))
        assert sampler.sample(values.clone(), [part]).tolist() == [penalised(values[0], prompt, [])]


def test_half_precision_logits_are_sampled_in_single_precision() -> None:
    values = logits(1).bfloat16()
    wish = SamplingParams(temperature=0.5, top_p=0.9)
    rows = [chunk(wish, seed=s) for s in range(50)]
    assert sample(values.expand(50, -1), *rows) == sample(values.float().expand(50, -1), *rows)


def test_broken_logits_of_one_row_leave_the_others_alone() -> None:
    values = logits(3)
    rows = [chunk(SamplingParams(top_p=0.9), seed=4), chunk(SamplingParams(), seed=5)]
    expected = sample(values[:2], *rows)
    values[2] = float("nan")
    for extra in (SamplingParams(top_p=0.9), SamplingParams(), SamplingParams(temperature=0)):
        tokens = sample(values, *rows, chunk(extra))
        assert tokens[:2] == expected
        assert 0 <= tokens[2] < VOCAB


def test_nothing_but_allowed_tokens_comes() -> None:
    values = logits(3)
    wish = SamplingParams(temperature=0, allowed_token_ids=(7, 9, 9))
    hot = SamplingParams(temperature=2, allowed_token_ids=(3,), logit_bias={4: 100})
    chunks = [
        replace(chunk(one, slot=slot), history=(0,) * 4)
        for slot, one in enumerate([wish, hot, SamplingParams(temperature=0)])
    ]
    likelier = 7 if values[0, 7] > values[0, 9] else 9
    assert sample(values, *chunks) == [likelier, 3, int(values[2].argmax())]


def test_allowed_tokens_are_those_of_the_slots_present_sequence() -> None:
    sampler = Sampler(4, VOCAB, CPU, KERNELS["chosen"])
    values, inputs = logits(1), torch.zeros(1, dtype=torch.int64)
    for allowed in ((5,), (6,)):
        wish = SamplingParams(temperature=0, allowed_token_ids=allowed)
        first = replace(chunk(wish), history=(0,) * 4)
        for one in (first, replace(first, history=None)):
            sampler.observe([one], [0], inputs)
            assert sampler.sample(values.clone(), [one]).tolist() == [*allowed]


def test_what_would_complete_a_bad_word_does_not_come() -> None:
    values = logits(2)
    best, second = values[0].topk(2).indices.tolist()
    greedy = SamplingParams(temperature=0)
    banned = replace(chunk(greedy), banned=(best, VOCAB + 1))
    assert sample(values[:1].repeat(2, 1), banned, chunk(greedy)) == [second, best]


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_bans_that_would_leave_nothing_yield(temperature: float) -> None:
    wish = SamplingParams(temperature=temperature, allowed_token_ids=(7, 9))
    for banned, left in (((7,), {9}), ((7, 9), {7, 9})):
        one = replace(chunk(wish), history=(0,) * 4, banned=banned)
        assert sample(logits(1), one)[0] in left
