"""A model of one's own, over a state of its own, as a StepModel: one block is one sequence."""

from __future__ import annotations

from collections import abc
from itertools import accumulate, chain
from typing import Any, Protocol

import torch
from torch import Tensor

from models.schedule.sequence import Chunk
from models.step.model import Capacity, InFlight
from models.step.native.rows import row_kernels
from models.step.paged import DeviceTokens
from models.step.sampler import Sampler
from models.step.scores import Scoring
from models.step.transfer import to_device

Logits = Tensor | abc.Sequence[float]  # [vocab_size], for the token that comes next


class PlainModel(Protocol):
    """All that a model of one's own must do. The state is opaque, and never shared."""

    @property
    def vocab_size(self) -> int: ...
    @property
    def max_context(self) -> int: ...

    def prefill(self, tokens: list[int]) -> tuple[Any, Logits]:
        """A new state that has read ``tokens``, and the logits after the last of them."""
        ...

    def decode(self, state: Any, token: int) -> tuple[Any, Logits]:
        """The state after one more token, and the logits after it. May change ``state``."""
        ...


class PlainStepModel:
    """Runs a ``PlainModel`` sequence by sequence; sampling is batched."""

    launch_ahead = False

    def __init__(
        self,
        model: PlainModel,
        *,
        slots: int,
        max_context: int | None = None,
        blocks: int | None = None,
        device: torch.device | None = None,
        facts: abc.Mapping[str, str] | None = None,
    ) -> None:
        longest = min(max_context or model.max_context, model.max_context)
        self.capacity = Capacity(
            max_context=longest,
            vocab_size=model.vocab_size,
            slots=slots,
            blocks=min(blocks or slots, slots),
            block_size=longest,
            prefix_cache=False,
        )
        self._model = model
        self._device = device or torch.device("cpu")
        self._facts = dict(facts or {"model": type(model).__name__})
        self._kernels = row_kernels(self._device)
        self._sampler = Sampler(slots, model.vocab_size, self._device, self._kernels)
        self._unread: dict[int, list[int]] = {}  # by slot: tokens that no state has read yet
        self._states: dict[int, Any] = {}
        self._last: dict[int, int] = {}

    @torch.inference_mode()
    def launch(self, chunks: abc.Sequence[Chunk]) -> InFlight:
        inputs = [self._take(chunk) for chunk in chunks]
        starts = [0, *accumulate(map(len, inputs))][:-1]
        self._sampler.observe(chunks, starts, to_device([*chain(*inputs)], self._device))
        read = [self._read(chunk) for chunk in chunks if chunk.samples or chunk.targets]
        wanted = [chunk for chunk in chunks if chunk.samples]
        logits = self._rows(after[-1] for after, chunk in read if chunk.samples)
        before = self._rows(row for after, chunk in read for row in after[: len(chunk.targets)])
        scoring = Scoring(chunks, logits, before, self._kernels)
        tokens = self._sampler.sample(logits, wanted)
        self._last.update(zip([chunk.slot for chunk in wanted], tokens.tolist(), strict=True))
        return DeviceTokens(tokens, scoring.scored(tokens))

    def release(self, slot: int) -> None:
        for by_slot in (self._states, self._unread, self._last):
            by_slot.pop(slot, None)

    def reset(self) -> None:
        for slot in (*self._states, *self._unread):
            self.release(slot)

    def describe(self) -> dict[str, str]:
        return dict(self._facts)

    def _take(self, chunk: Chunk) -> list[int]:
        """The chunk's inputs, added to what its slot's state must read next."""
        tokens = list(chunk.token_ids)
        if chunk.from_slot:
            tokens.append(self._last[chunk.slot])
        if chunk.history is not None:
            self.release(chunk.slot)
            self._unread[chunk.slot] = list(chunk.history)
        else:
            self._unread.setdefault(chunk.slot, []).extend(tokens)
        return tokens

    def _read(self, chunk: Chunk) -> tuple[list[Tensor], Chunk]:
        """Lets the slot's state read all that came since it last did.

        The logits after it, and after each token before it if the chunk has targets.
        """
        slot, unread, after = chunk.slot, self._unread.pop(chunk.slot), []
        if slot not in self._states:
            first = 1 if chunk.targets else len(unread)
            self._states[slot], logits = self._model.prefill(unread[:first])
            after.append(logits)
            unread = unread[first:]
        for token in unread:
            self._states[slot], logits = self._model.decode(self._states[slot], token)
            after = [*after, logits] if chunk.targets else [logits]
        return [self._checked(one) for one in after], chunk

    def _checked(self, logits: Logits) -> Tensor:
        """Raises ValueError for what no token can be drawn from."""
        values = torch.as_tensor(logits, device=self._device).reshape(-1)
        expected = self.capacity.vocab_size
        if values.numel() != expected:
            raise ValueError(f"the model made {values.numel()} logits for {expected} tokens")
        if not values.max() > float("-inf"):  # false for NaN too
            raise ValueError("none of the logits that the model made is a number above -inf")
        return values

    def _rows(self, logits: abc.Iterable[Tensor]) -> Tensor:
        rows = list(logits)
        none = torch.empty(0, self.capacity.vocab_size, device=self._device)
        return torch.stack(rows) if rows else none
