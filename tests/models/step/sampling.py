"""One step's logits, sampled with the wishes of its chunks."""

from __future__ import annotations

import torch
from torch import Tensor

from models.request import SamplingParams
from models.schedule.sequence import Chunk
from models.step.native.rows import RowKernels
from models.step.sampler import Sampler
from tests.models.step.driving import sequence

CPU = torch.device("cpu")
VOCAB = 300
KERNELS: dict[str, RowKernels | None] = {"chosen": None}


def chunk(
    sampling: SamplingParams,
    *,
    prompt: int = 3,
    position: int = 5,
    seed: int = 0,
    slot: int = 0,
    stop_ids: frozenset[int] = frozenset(),
) -> Chunk:
    """One that samples the token at ``position``, with its last input fed."""
    owner = sequence([0] * prompt, sampling, seed=seed, stop_ids=stop_ids)
    return Chunk(owner, position - 1, 1, True, (0,), False, slot, (), None)


def logits(rows: int, vocab: int = VOCAB, scale: float = 2.0, seed: int = 0) -> Tensor:
    return torch.randn(rows, vocab, generator=torch.Generator().manual_seed(seed)) * scale


def sample(values: Tensor, *chunks: Chunk) -> list[int]:
    sampler = Sampler(64, values.shape[1], CPU, KERNELS["chosen"])
    inputs = torch.zeros(len(chunks), dtype=torch.int64)
    sampler.observe(chunks, range(len(chunks)), inputs)
    tokens: list[int] = sampler.sample(values.clone(), chunks).tolist()
    return tokens
