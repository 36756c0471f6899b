from __future__ import annotations

from typing import Any

import torch

from models.request import SamplingParams
from models.step.draw import Filters, draw_filtered, draw_from, draw_likeliest
from models.step.sampler import Sampler
from models.step.waits import WithoutWaiting
from tests.models.step.absent_cuda import absent_cuda
from tests.models.step.sampling import chunk, logits

VOCAB = 9000


def test_the_likeliest_alone_give_the_same_tokens() -> None:
    rows = 32
    probabilities = logits(rows, VOCAB).softmax(-1)
    uniforms = torch.rand(rows, 1, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    filters = Filters(
        torch.randint(1, 257, (rows, 1), generator=torch.Generator().manual_seed(1)),
        torch.linspace(0.2, 1, rows, dtype=torch.float64)[:, None],
        torch.linspace(0, 0.5, rows)[:, None],
    )
    near = draw_likeliest(probabilities, uniforms, filters, 256)
    assert near.tolist() == draw_likeliest(probabilities, uniforms, filters).tolist()
    assert near.tolist() == draw_filtered(probabilities, uniforms, filters).tolist()


def test_what_takes_most_memory_needs_no_chunks() -> None:
    values = logits(3, VOCAB)
    assert draw_from(values).shape == (3,)
    with absent_cuda() as device, Sorted() as noted:
        assert draw_from(torch.zeros(3, VOCAB, device=device)).device == device
        assert noted.lengths == [VOCAB]


class Sorted(WithoutWaiting):  # type: ignore[no-untyped-call]
    """Notes how long the rows are that are sorted."""

    def __init__(self) -> None:
        super().__init__()
        self.lengths: list[int] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch.ops.aten.sort.stable:
            self.lengths.append(args[0].shape[1])
        return super().__torch_dispatch__(func, types, args, kwargs)


def test_on_a_gpu_only_rows_without_a_small_top_k_are_sorted_whole() -> None:
    wishes = [SamplingParams(top_k=20, top_p=0.9), SamplingParams(top_p=0.9)]
    with absent_cuda() as device:
        values = torch.zeros(2, VOCAB, device=device)
        for asked, expected in ((wishes[:1], []), (wishes, [VOCAB])):
            chunks = [chunk(wish) for wish in asked]
            with Sorted() as noted:
                tokens = Sampler(4, VOCAB, device).sample(values[: len(chunks)], chunks)
            assert noted.lengths == expected
            assert tokens.shape == (len(chunks),)
