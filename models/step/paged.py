"""Any transformers causal model, unmodified, over paged KV blocks."""

from __future__ import annotations

import inspect
from collections import abc
from typing import Any, Protocol, TypeVar

import torch
from torch import Tensor
from transformers import PreTrainedModel

from models.schedule.sequence import Chunk, Scores
from models.step.adapting import Adapting
from models.step.attention import PagedAttention, attending
from models.step.cache import Scratch
from models.step.capture import Capture
from models.step.graphs import Computed, DecodeGraphs
from models.step.layout import StepLayout
from models.step.model import Capacity, InFlight
from models.step.native.rows import RowKernels
from models.step.placement import Placement, Span
from models.step.replayed import replay_objection
from models.step.sampler import Sampler
from models.step.scores import Scoring, StepScores
from models.step.transfer import to_host


class Layout(Protocol):
    """Where one step's tokens lie, one after another."""

    tokens: int
    starts: list[int]  # the first flat token of each span, in the order the spans were given

    @property
    def order(self) -> list[int]:
        """The given spans' indices, in flat order."""
        ...

    def indices(self, values: list[int], dtype: torch.dtype = torch.int64) -> Tensor:
        """A tensor of ``values`` on the device."""
        ...

    def send(self, *lists: list[int]) -> list[Tensor]:
        """``indices`` of each list, together with what else the step needs there."""
        ...


LayoutT = TypeVar("LayoutT", bound=Layout)


class Forward(Protocol[LayoutT]):
    """A model's forward pass over the flat tokens of one step, and over its own pool of blocks."""

    block_size: int

    def layout(self, spans: abc.Sequence[Span]) -> LayoutT: ...

    def __call__(self, layout: LayoutT, ids: Tensor, keep: Tensor) -> Tensor:
        """Logits [len(keep), vocabulary] after the flat tokens ``keep`` of ``ids`` [tokens].

        ``keep`` names none twice.
        """
        ...


class PagedModel:
    """A ``StepModel``. The pool of its forward pass must be reached by no other step."""

    def __init__(
        self,
        device: torch.device,
        capacity: Capacity,
        forward: Forward[Any],
        facts: abc.Mapping[str, str],
        kernels: RowKernels | None = None,
    ) -> None:
        self.capacity = capacity
        self.device = device
        self.launch_ahead = self.device.type == "cuda"
        self._forward = forward
        self._facts = dict(facts)
        self._kernels = kernels
        self._sampler = Sampler(capacity.slots, capacity.vocab_size, self.device, self._kernels)
        self._graphs: DecodeGraphs | None = None
        # By slot, and one more that pads recorded steps.
        self._last = torch.zeros(capacity.slots + 1, dtype=torch.int64, device=self.device)

    def record_decoding(self, *captures: Capture) -> None:
        """From here on, steps that only decode are launched as a whole, by the first that works."""
        failed = ""
        for capture in captures:
            graphs = DecodeGraphs(self._forward, self._last, self.capacity)
            fact = graphs.record(capture)
            objection = fact
            if graphs.sizes:
                objection = replay_objection(self._forward, graphs, self.capacity)
            if not objection:
                self._graphs = graphs
                self._facts["graphs"] = "; ".join(filter(None, (fact, capture.note, failed)))
                return
            failed = " ".join(filter(None, ("none", capture.note, f"({objection})")))
        self._facts["graphs"] = failed

    @torch.inference_mode()
    def launch(self, chunks: abc.Sequence[Chunk]) -> InFlight:
        recorded = self._graphs is not None and self._graphs.takes(chunks)
        step = self._graphs.run(chunks) if self._graphs and recorded else self._compute(chunks)
        self._sampler.observe(chunks, step.starts, step.ids)
        parts = [part for chunk in chunks for part in chunk.parts]
        wanted = [part for part in parts if part.samples]
        logits = step.logits[: len(wanted)]
        scoring = None
        if any(chunk.scores for chunk in chunks):
            scoring = Scoring(parts, logits, step.logits[len(wanted) :], self._kernels)
        tokens = self._sampler.sample(logits, wanted)
        self._last.index_copy_(0, step.slots, tokens)
        return DeviceTokens(tokens, None if scoring is None else scoring.scored(tokens))

    @torch.inference_mode()
    def logits(self, span: Span, token_ids: abc.Sequence[int]) -> Tensor:
        """[count, vocabulary] after each token of ``span``, whose blocks nothing else may use."""
        layout = self._forward.layout([span])
        every = layout.indices([*range(span.count)])
        return self._forward(layout, layout.indices([*token_ids]), every).clone()

    def release(self, slot: int) -> None:
        """Nothing to do: what a slot holds is written anew at the next admission."""

    def reset(self) -> None:
        """Blocks are written before they are read."""
        if self._graphs is not None:
            self._graphs.forget()

    def describe(self) -> dict[str, str]:
        return dict(self._facts)

    def _compute(self, chunks: abc.Sequence[Chunk]) -> Computed:
        layout = self._forward.layout(chunks)
        ends, scored = _kept(layout, chunks)
        fed = [(i, chunk) for i, chunk in enumerate(chunks) if chunk.from_slot]
        kept = ends + scored
        assert len(set(kept)) == len(kept), "a flat token is kept twice"
        ids, keep, slots, places, owners = layout.send(
            _known_ids(layout, chunks),
            kept,
            [chunk.slot for chunk in chunks for _ in range(chunk.sampled)],
            [layout.starts[i] + chunk.count - 1 for i, chunk in fed],
            [chunk.slot for _, chunk in fed],
        )
        if fed:
            ids.index_copy_(0, places, self._last.index_select(0, owners))
        return Computed(ids, layout.starts, self._forward(layout, ids, keep), slots)


def _known_ids(layout: Layout, chunks: abc.Sequence[Chunk]) -> list[int]:
    """The flat inputs; 0 for those that are still on the device."""
    ids = [0] * layout.tokens
    for start, chunk in zip(layout.starts, chunks, strict=True):
        ids[start : start + len(chunk.token_ids)] = chunk.token_ids
    return ids


def _kept(layout: Layout, chunks: abc.Sequence[Chunk]) -> tuple[list[int], list[int]]:
    """The flat tokens whose logits are sampled from, and those whose logits score a target."""
    firsts = list(zip(layout.starts, chunks, strict=True))
    ends = [start + part.count - 1 for start, c in firsts if c.samples for part in c.parts]
    return ends, [start + i for start, chunk in firsts for i in range(len(chunk.targets))]


class PagedForward:
    """The model's forward pass over the flat tokens of one step."""

    def __init__(
        self,
        model: PreTrainedModel,
        block_size: int,
        adapting: Adapting | None = None,
        *,
        varlen: bool,
    ) -> None:
        self._model: Any = model
        self._adapting = adapting or Adapting(model, ())
        self.block_size = block_size
        self._varlen = varlen
        self._scratch = Scratch()
        self._selects = "logits_to_keep" in inspect.signature(model.forward).parameters

    def layout(self, spans: abc.Sequence[Span]) -> StepLayout:
        device, dtype = self._model.device, self._model.dtype
        return StepLayout(spans, self.block_size, device, dtype, varlen=self._varlen)

    def __call__(self, layout: Placement, ids: Tensor, keep: Tensor) -> Tensor:
        """Logits [len(keep), vocabulary] after the flat tokens ``keep`` of ``ids`` [tokens]."""
        asked = {"logits_to_keep": keep} if self._selects else {}
        attention = PagedAttention(layout, self._scratch, varlen=self._varlen)
        with attending(attention), self._adapting.of(layout.adapted, len(ids)):
            output = self._model(
                input_ids=ids[None],
                position_ids=layout.positions[None],
                use_cache=False,
                **asked,
            )
        logits: Tensor = output.logits[0]
        return logits if self._selects else logits.index_select(0, keep)


class DeviceTokens:
    """Tokens of a step that may still be running."""

    def __init__(self, tokens: Tensor, scores: StepScores | None = None) -> None:
        self._event: torch.cuda.Event | None = None
        self._tokens = to_host(tokens)
        self._scores = scores
        if tokens.is_cuda:
            self._event = torch.cuda.Event()  # type: ignore[no-untyped-call]
            self._event.record()

    def tokens(self) -> list[int]:
        self._wait()
        values: list[int] = self._tokens.tolist()
        return values

    def scores(self) -> list[Scores]:
        self._wait()
        return [] if self._scores is None else self._scores.read()

    def _wait(self) -> None:
        if self._event is not None:
            self._event.synchronize()
