"""Which tokens a sequence has seen, on the device and by slot, and what that costs their logits."""

from __future__ import annotations

from collections import abc

import torch
from torch import Tensor

from models.schedule.sequence import Chunk
from models.step.transfer import to_device

ROOM = 512  # tokens of a sequence at first


class Penalties:
    """Counts by slot, allocated when the first sequence that needs them comes.

    Every input of such a sequence is counted once, when it is fed or, after (re)admission, from
    the chunk's history; so a token sampled on the device is counted without being read. The tokens
    themselves are kept by position: only their logits need be touched.
    """

    def __init__(self, slots: int, vocab_size: int, device: torch.device) -> None:
        self._generated = torch.zeros(slots, vocab_size, device=device)  # how often
        self._prompt = torch.zeros(slots, vocab_size, dtype=torch.bool, device=device)
        self._tokens = torch.zeros(slots, ROOM, dtype=torch.int64, device=device)

    def observe(self, chunks: abc.Sequence[Chunk], starts: abc.Sequence[int], ids: Tensor) -> None:
        """Counts the inputs of penalised ``chunks``; chunk i's begin at ``ids[starts[i]]``."""
        fed: list[tuple[Chunk, int]] = []
        for chunk, start in zip(chunks, starts, strict=True):
            if not chunk.sequence.sampling.penalises:
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
        slots = self._index([chunk.slot for chunk in chunks])[:, None]
        tokens = self._seen(slots, [chunk.start + chunk.count for chunk in chunks])
        counts = self._generated[slots, tokens]
        wishes = [chunk.sequence.sampling for chunk in chunks]
        place = (rows[:, None], tokens)
        chosen = logits[place]
        # A penalty that nobody in the step asked for is left out; asked for by others, it changes
        # no bit of a row that did not.
        if any(wish.repetition_penalty != 1 for wish in wishes):
            penalty = self._column([wish.repetition_penalty for wish in wishes])
            seen = self._prompt[slots, tokens].logical_or_(counts)
            scaled = torch.where(chosen > 0, chosen / penalty, chosen * penalty)
            torch.where(seen, scaled, chosen, out=chosen)
        if any(wish.presence_penalty for wish in wishes):
            chosen.sub_((counts > 0) * self._column([wish.presence_penalty for wish in wishes]))
        if any(wish.frequency_penalty for wish in wishes):
            chosen.sub_(counts * self._column([wish.frequency_penalty for wish in wishes]))
        logits[place] = chosen  # what comes twice is the same both times

    def _seen(self, slots: Tensor, lengths: list[int]) -> Tensor:
        """Tokens [S, longest] of each sequence; behind a shorter one its first token again."""
        tokens = self._tokens[slots[:, 0], : max(lengths)]
        place = torch.arange(tokens.shape[1], device=tokens.device)
        return torch.where(place < self._index(lengths)[:, None], tokens, tokens[:, :1])

    def _restart(self, chunk: Chunk, history: tuple[int, ...]) -> None:
        split = chunk.sequence.prompt_length
        self._generated[chunk.slot] = 0
        self._prompt[chunk.slot] = False
        tokens = self._index(history)
        self._make_room(len(history))
        self._tokens[chunk.slot, : len(history)] = tokens
        self._prompt[chunk.slot, tokens[:split]] = True
        if len(history) > split:
            answer = tokens[split:]
            ones = torch.ones(len(answer), device=answer.device)
            self._generated[chunk.slot].index_add_(0, answer, ones)

    def _make_room(self, length: int) -> None:
        room = self._tokens.shape[1]
        if length > room:
            more = max(length, 2 * room) - room
            self._tokens = torch.nn.functional.pad(self._tokens, (0, more))

    def _count_fed(self, fed: list[tuple[Chunk, int]], ids: Tensor) -> None:
        self._make_room(max(chunk.start + chunk.count for chunk, _ in fed))
        fed_tokens = [
            (
                chunk.slot,
                chunk.start + i,
                start + i,
                chunk.start + i >= chunk.sequence.prompt_length,
            )
            for chunk, start in fed
            for i in range(chunk.count)
        ]
        slots, positions, places, generated = map(self._index, zip(*fed_tokens, strict=True))
        tokens = ids[places]
        self._tokens[slots, positions] = tokens
        self._generated.index_put_((slots, tokens), generated.float(), accumulate=True)
        if prompt := [row for row, fed_token in enumerate(fed_tokens) if not fed_token[3]]:
            rows = self._index(prompt)
            self._prompt[slots[rows], tokens[rows]] = True

    def _index(self, values: abc.Sequence[int]) -> Tensor:
        return to_device(values, self._prompt.device)

    def _column(self, values: list[float]) -> Tensor:
        return to_device(values, self._prompt.device, torch.float32)[:, None]
