"""The next token of every sequence in a step, each by its own parameters.

Order: logit bias, min_tokens, bad words, allowed tokens, penalties, grammar, temperature, min_p,
top_k, top_p. A forced token comes whatever these say. What a row goes through depends on its own
parameters only, so its token does not depend on its neighbours.
"""

from __future__ import annotations

from collections import abc
from dataclasses import dataclass

import torch
from torch import Tensor

from models.schedule.sequence import Chunk
from models.step.draw import NARROW, NO_TOP_K, Filters, draw, draw_filtered
from models.step.native.rows import GREEDY, RowKernels, RowWish
from models.step.penalties import Penalties
from models.step.restrict import restrict
from models.step.transfer import to_device
from models.step.uniform import uniform

GREEDY_BELOW = 1e-5  # a temperature so low only overflows


@dataclass(frozen=True, slots=True)
class Biases:
    """What one sequence adds to its logits."""

    wish: object  # the parameters that they are from
    tokens: Tensor
    values: Tensor


class Sampler:
    """Samples for up to ``slots`` sequences; remembers only what penalties need.

    ``kernels`` of the CPU draw in place of torch's operators, from the same distribution; which
    token a seed gives may differ between the two where rounding decides.
    """

    def __init__(
        self,
        slots: int,
        vocab_size: int,
        device: torch.device,
        kernels: RowKernels | None = None,
    ) -> None:
        self._slots = slots
        self._vocab_size = vocab_size
        self._device = device
        self._kernels = kernels
        self._penalties: Penalties | None = None
        self._allowed: dict[int, Tensor] = {}  # by slot: the only tokens it may sample
        self._biases: dict[int, Biases] = {}  # by slot

    def observe(self, chunks: abc.Sequence[Chunk], starts: abc.Sequence[int], ids: Tensor) -> None:
        """Must see all chunks of a step: ``ids`` are its inputs, chunk i's from ``starts[i]``."""
        self._note_allowed(chunks)
        if not any(chunk.sequence.sampling.penalises for chunk in chunks):
            return
        if self._penalties is None:
            self._penalties = Penalties(self._slots, self._vocab_size, self._device)
        self._penalties.observe(chunks, starts, ids)

    def sample(self, logits: Tensor, chunks: abc.Sequence[Chunk]) -> Tensor:
        """Int64 tokens [S] from ``logits`` [S, vocabulary], which may be changed; one a chunk."""
        tokens = self._drawn(logits, chunks)
        if forced := [(i, c.forced) for i, c in enumerate(chunks) if c.forced is not None]:
            rows, values = zip(*forced, strict=True)
            tokens[self._tensor(rows)] = self._tensor(values)
        return tokens

    def _drawn(self, logits: Tensor, chunks: abc.Sequence[Chunk]) -> Tensor:
        adjusted = changes(chunks)
        if self._kernels is None and not adjusted and all(map(_is_greedy, chunks)):
            return logits.argmax(-1)
        if logits.dtype != torch.float32:
            logits = logits.float()
        if adjusted:
            self._adjust(logits, chunks)
        if self._kernels is not None:
            return self._kernels.sample(logits, [_row_wish(chunk) for chunk in chunks])
        return self._choose(logits, chunks)

    def _adjust(self, logits: Tensor, chunks: abc.Sequence[Chunk]) -> None:
        self._bias(logits, chunks)
        self._forbid(logits, chunks)
        self._allow(logits, chunks)
        rows = [row for row, chunk in enumerate(chunks) if chunk.sequence.sampling.penalises]
        if rows:
            assert self._penalties is not None
            self._penalties.apply(logits, self._tensor(rows), [chunks[row] for row in rows])
        restrict(logits, [chunk.ruling for chunk in chunks])

    def _bias(self, logits: Tensor, chunks: abc.Sequence[Chunk]) -> None:
        for row, chunk in enumerate(chunks):
            if chunk.sequence.sampling.logit_bias:
                biases = self._biases_of(chunk)
                logits[row].index_add_(0, biases.tokens, biases.values)

    def _biases_of(self, chunk: Chunk) -> Biases:
        wish = chunk.sequence.sampling
        known = self._biases.get(chunk.slot)
        if known is None or known.wish is not wish:
            tokens = self._tensor([*wish.logit_bias])
            values = self._tensor([*wish.logit_bias.values()], torch.float32)
            known = self._biases[chunk.slot] = Biases(wish, tokens, values)
        return known

    def _forbid(self, logits: Tensor, chunks: abc.Sequence[Chunk]) -> None:
        forbidden = [
            (row, token)
            for row, chunk in enumerate(chunks)
            for token in (*chunk.banned, *(chunk.sequence.stop_ids if _must_go_on(chunk) else ()))
            if token < logits.shape[1]
        ]
        if forbidden:
            rows, tokens = zip(*forbidden, strict=True)
            logits[self._tensor(rows), self._tensor(tokens)] = float("-inf")

    def _note_allowed(self, chunks: abc.Sequence[Chunk]) -> None:
        for chunk in chunks:
            if chunk.history is None:
                continue
            self._allowed.pop(chunk.slot, None)
            if (allowed := chunk.sequence.sampling.allowed_token_ids) is not None:
                self._allowed[chunk.slot] = self._tensor([*dict.fromkeys(allowed)])

    def _allow(self, logits: Tensor, chunks: abc.Sequence[Chunk]) -> None:
        for row, chunk in enumerate(chunks):
            if chunk.sequence.sampling.allowed_token_ids is not None:
                tokens = self._allowed[chunk.slot]
                kept = logits[row, tokens]
                kept = kept.masked_fill(kept.isneginf().all(), 0)  # bans that leave nothing yield
                logits[row] = float("-inf")
                logits[row, tokens] = kept

    def _choose(self, logits: Tensor, chunks: abc.Sequence[Chunk]) -> Tensor:
        kinds: dict[str, list[int]] = {}
        for row, chunk in enumerate(chunks):
            kinds.setdefault(_kind(chunk), []).append(row)
        if len(kinds) == 1:
            return self._choose_kind(next(iter(kinds)), logits, chunks)
        tokens = torch.empty(len(chunks), dtype=torch.int64, device=self._device)
        for kind, rows in kinds.items():
            index = self._tensor(rows)
            tokens[index] = self._choose_kind(kind, logits[index], [chunks[row] for row in rows])
        return tokens

    def _choose_kind(self, kind: str, logits: Tensor, chunks: abc.Sequence[Chunk]) -> Tensor:
        if kind == "greedy":
            return logits.argmax(-1)
        heat = [chunk.sequence.sampling.temperature for chunk in chunks]
        probabilities = (logits / self._tensor(heat, torch.float32)[:, None]).softmax(-1)
        numbers = [uniform(c.sequence.seed, c.start + c.count) for c in chunks]
        uniforms = self._tensor(numbers, torch.float64)[:, None]
        if kind == "all":
            return draw(probabilities, uniforms)
        narrow = kind == "narrow"
        return draw_filtered(probabilities, uniforms, self._filters(chunks), narrow=narrow)

    def _filters(self, chunks: abc.Sequence[Chunk]) -> Filters:
        wishes = [chunk.sequence.sampling for chunk in chunks]
        return Filters(
            self._tensor([min(w.top_k or NO_TOP_K, NO_TOP_K) for w in wishes])[:, None],
            self._tensor([w.top_p for w in wishes], torch.float64)[:, None],
            self._tensor([w.min_p for w in wishes], torch.float32)[:, None],
        )

    def _tensor(self, values: abc.Sequence[float], dtype: torch.dtype = torch.int64) -> Tensor:
        return to_device(values, self._device, dtype)


def changes(chunks: abc.Sequence[Chunk]) -> bool:
    """Whether sampling for these changes their logits."""
    return any(map(_is_adjusted, chunks))


def _row_wish(chunk: Chunk) -> RowWish:
    if _is_greedy(chunk):
        return GREEDY
    wish = chunk.sequence.sampling
    number = uniform(chunk.sequence.seed, chunk.start + chunk.count)
    return RowWish(number, wish.top_p, wish.temperature, wish.min_p, min(wish.top_k, NO_TOP_K))


def _is_greedy(chunk: Chunk) -> bool:
    return chunk.sequence.sampling.temperature < GREEDY_BELOW


def _must_go_on(chunk: Chunk) -> bool:
    generated = chunk.start + chunk.count - chunk.sequence.prompt_length
    return generated < chunk.sequence.sampling.min_tokens


def _is_adjusted(chunk: Chunk) -> bool:
    wish = chunk.sequence.sampling
    limited = bool(wish.logit_bias or chunk.banned) or wish.allowed_token_ids is not None
    limited = limited or chunk.ruling is not None
    return limited or _must_go_on(chunk) or wish.penalises


def _kind(chunk: Chunk) -> str:
    wish = chunk.sequence.sampling
    if _is_greedy(chunk):
        return "greedy"
    if 0 < wish.top_k <= NARROW:
        return "narrow"
    return "filtered" if wish.top_p < 1 or wish.top_k or wish.min_p else "all"
