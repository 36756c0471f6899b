"""Which tokens a sequence has seen, on the device and by slot, and what that costs their logits."""

from __future__ import annotations

from collections import abc

import torch
from torch import Tensor

from models.schedule.sequence import Chunk
from models.step.transfer import to_device


def is_penalised(chunk: Chunk) -> bool:
    """Whether this sequence's history changes its logits."""
    wish = chunk.sequence.sampling
    return wish.presence_penalty != 0 or wish.frequency_penalty != 0 or wish.repetition_penalty != 1


class Penalties:
    """Counts by slot, allocated when the first sequence that needs them comes.

    Every input of such a sequence is counted once, when it is fed or, after (re)admission, from
    the chunk's history; so a token sampled on the device is counted without being read.
    """

    def __init__(self, slots: int, vocab_size: int, device: torch.device) -> None:
        self._generated = torch.zeros(slots, vocab_size, device=device)  # how often
        self._prompt = torch.zeros(slots, vocab_size, dtype=torch.bool, device=device)

    def observe(self, chunks: abc.Sequence[Chunk], starts: abc.Sequence[int], ids: Tensor) -> None:
        """Counts the inputs of penalised ``chunks``; chunk i's begin at ``ids[starts[i]]``."""
        fed: list[tuple[Chunk, int]] = []
        for chunk, start in zip(chunks, starts, strict=True):
            if not is_penalised(chunk):
                continue
            if chunk.history is None:
                fed.append((chunk, start))
            else:
                self._restart(chunk, chunk.history)
        if fed:
            self._count_fed(fed, ids)

    def apply(self, logits: Tensor, rows: Tensor, chunks: abc.Sequence[Chunk]) -> None:
        """Changes ``logits`` [S, vocabulary] in place at ``rows``, one for each of ``chunks``.

        Repetition as in CTRL (Keskar et al., 2019), over prompt and answer; frequency and presence
        as OpenAI documents them, over the answer only.
        """
        slots = self._index([chunk.slot for chunk in chunks])
        counts = self._generated[slots]
        wishes = [chunk.sequence.sampling for chunk in chunks]
        chosen = logits[rows] if len(rows) < len(logits) else logits
        # A penalty that nobody in the step asked for is left out; asked for by others, it changes
        # no bit of a row that did not.
        if any(wish.repetition_penalty != 1 for wish in wishes):
            penalty = self._column([wish.repetition_penalty for wish in wishes])
            seen = self._prompt[slots].logical_or_(counts)
            scaled = torch.where(chosen > 0, chosen / penalty, chosen * penalty)
            torch.where(seen, scaled, chosen, out=chosen)
        if any(wish.presence_penalty for wish in wishes):
            chosen.sub_((counts > 0) * self._column([wish.presence_penalty for wish in wishes]))
        if any(wish.frequency_penalty for wish in wishes):
            chosen.sub_(counts * self._column([wish.frequency_penalty for wish in wishes]))
        if chosen is not logits:
            logits[rows] = chosen

    def _restart(self, chunk: Chunk, history: tuple[int, ...]) -> None:
        split = chunk.sequence.prompt_length
        self._generated[chunk.slot] = 0
        self._prompt[chunk.slot] = False
        self._prompt[chunk.slot, self._index(history[:split])] = True
        if len(history) > split:
            self._add([chunk.slot] * (len(history) - split), self._index(history[split:]))

    def _count_fed(self, fed: list[tuple[Chunk, int]], ids: Tensor) -> None:
        prompt: list[tuple[int, int]] = []
        answer: list[tuple[int, int]] = []
        for chunk, start in fed:
            in_prompt = min(max(chunk.sequence.prompt_length - chunk.start, 0), chunk.count)
            prompt += [(chunk.slot, start + i) for i in range(in_prompt)]
            answer += [(chunk.slot, start + i) for i in range(in_prompt, chunk.count)]
        if prompt:
            slots, places = (self._index(column) for column in zip(*prompt, strict=True))
            self._prompt[slots, ids[places]] = True
        if answer:
            owners, flat = zip(*answer, strict=True)
            self._add(list(owners), ids[self._index(flat)])

    def _add(self, slots: list[int], tokens: Tensor) -> None:
        ones = torch.ones(len(slots), device=tokens.device)
        self._generated.index_put_((self._index(slots), tokens), ones, accumulate=True)

    def _index(self, values: abc.Sequence[int]) -> Tensor:
        return to_device(values, self._prompt.device)

    def _column(self, values: list[float]) -> Tensor:
        return to_device(values, self._prompt.device, torch.float32)[:, None]
