"""How likely tokens were by the model's own logits, computed where the logits are."""

from __future__ import annotations

from collections import abc
from itertools import chain

import torch
from torch import Tensor

from models.schedule.sequence import Chunk, Scores
from models.step.native.rows import RowKernels
from models.step.sampler import changes
from models.step.transfer import to_device, to_host


class Scoring:
    """What one step's chunks ask to be scored. Where nothing is asked, nothing is computed.

    The rows of the tokens sampled are copied before the sampler may change them.
    """

    def __init__(
        self,
        chunks: abc.Sequence[Chunk],
        logits: Tensor,
        prompt_logits: Tensor,
        kernels: RowKernels | None = None,
    ) -> None:
        """``logits`` [S, vocabulary] of the chunks that sample; one row of the others a target."""
        self._kernels = kernels
        self._chunks = chunks
        self._device = logits.device
        sampling = [chunk for chunk in chunks if chunk.samples]
        wishes = [chunk.sequence.sampling.logprobs for chunk in sampling]
        self._rows = [row for row, wish in enumerate(wishes) if wish is not None]
        self._index = to_device(self._rows, self._device) if self._rows else None
        self._kept = None if self._index is None else logits
        if self._index is not None and (len(self._rows) < len(sampling) or changes(sampling)):
            self._kept = logits[self._index]
        self._top = max((wish or 0 for wish in wishes), default=0)
        self._prompt = prompt_logits

    def scored(self, tokens: Tensor) -> StepScores | None:
        """The scores, now that ``tokens`` [S] are sampled; they may still be on their way."""
        parts: list[ScoredRows] = []
        if self._kept is not None and self._index is not None:
            parts.append(ScoredRows(self._kept, tokens[self._index], self._top, self._kernels))
        targets = [*chain.from_iterable(chunk.targets for chunk in self._chunks)]
        if targets:
            tops = (c.sequence.sampling.prompt_logprobs for c in self._chunks if c.targets)
            wanted = to_device(targets, self._device)
            most = max(top or 0 for top in tops)
            parts.append(ScoredRows(self._prompt, wanted, most, self._kernels))
        return StepScores(self._chunks, parts) if parts else None


class ScoredRows:
    """Scores of one token a row, on their way to the host."""

    def __init__(
        self, logits: Tensor, tokens: Tensor, top: int, kernels: RowKernels | None = None
    ) -> None:
        """``logits`` [R, vocabulary] as the model made them, ``tokens`` [R]."""
        score = _score if kernels is None else kernels.score
        values, ids = score(logits.float(), tokens, min(top, logits.shape[1]))
        self._values, self._ids = to_host(values), to_host(ids)

    def read(self) -> abc.Iterator[Scores]:
        """Row by row, once the device is done."""
        for (logprob, *values), (rank, *ids) in zip(
            self._values.tolist(), self._ids.tolist(), strict=True
        ):
            yield Scores(logprob, rank, tuple(zip(ids, values, strict=True)))


def _score(logits: Tensor, tokens: Tensor, top: int) -> tuple[Tensor, Tensor]:
    """What ``RowKernels.score`` computes, on any device."""
    chosen = logits.gather(1, tokens[:, None])
    rank = (logits > chosen).sum(-1, keepdim=True) + 1
    best, ids = logits.topk(top)
    values = torch.cat([chosen, best], 1) - logits.logsumexp(-1, keepdim=True)
    return values, torch.cat([rank, ids], 1)


class StepScores:
    """The scores of a whole step; to be read once its tokens are there."""

    def __init__(self, chunks: abc.Sequence[Chunk], parts: abc.Sequence[ScoredRows]) -> None:
        """``parts``: of the tokens sampled, then of the targets, as far as there are any."""
        self._chunks = chunks
        self._parts = parts

    def read(self) -> list[Scores]:
        """As ``InFlight.scores`` gives them."""
        parts = [part.read() for part in self._parts]
        of_sampled, of_targets = parts[0], parts[-1]
        scores: list[Scores] = []
        for chunk in self._chunks:
            wish = chunk.sequence.sampling
            scores += [_cut(next(of_targets), wish.prompt_logprobs) for _ in chunk.targets]
            if chunk.scores > len(chunk.targets):
                scores.append(_cut(next(of_sampled), wish.logprobs))
        return scores


def _cut(scores: Scores, top: int | None) -> Scores:
    return scores._replace(top=scores.top[: top or 0])
