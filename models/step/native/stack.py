"""The compiled stack of one model: its weights packed, its pool of blocks, its steps."""

from __future__ import annotations

import ctypes
from ctypes import c_void_p

import torch
from torch import Tensor

from models.step.grouped import GroupedLinear
from models.step.native.adapters import NativeAdapters
from models.step.native.blueprint import (
    Blueprint,
    embeddings,
)
from models.step.native.gated import Gated
from models.step.native.halves import experts_weights, gated_weights
from models.step.native.layer import Half, LayerParts
from models.step.native.library import TABLES, LayerWeights, Shape, Step
from models.step.native.linear import Rows
from models.step.native.team import Team
from models.step.native.weights import Held, Weights

KV_FORMATS = {torch.float32: 0, torch.bfloat16: 1, torch.float16: 2}
ARITHMETICS = {torch.float32: 0, torch.bfloat16: 1, torch.int8: 2}
ROUNDED = {Held.INT8: "in int8", Held.INT4: "in int4, values and the output layer in int8"}


class Stack:
    """Holds copies of all weights but those in place: the model's own may go once it is made.

    Matrices are ``held`` as they are or rounded: to int8 with a scale for each 64 inputs of an
    output; to int4 with a scale and a zero for each 32, but values and the head to int8. What they
    are multiplied with is rounded to ``arithmetic``; sums and all else are in float32. For one
    thread at a time.
    """

    def __init__(
        self,
        blueprint: Blueprint,
        team: Team,
        *,
        positions: int,
        block_size: int,
        kv_dtype: torch.dtype,
        arithmetic: torch.dtype,
        held: Held = Held.EXACT,
    ) -> None:
        """``positions`` is the longest sequence. Raises MemoryError."""
        assert (arithmetic == torch.int8) == (held in ROUNDED)
        self.team = team
        self._library = team.library
        self._positions = positions
        self._block_size = block_size
        self._blocks = 0
        self.vocab = blueprint.vocab
        self._logits = torch.empty(0, blueprint.vocab)
        self._arithmetic = arithmetic
        self._held = held
        self._kept = Weights()
        self._numbers = blueprint.numbers
        self._coded = any(isinstance(rows.linear, GroupedLinear) for rows in blueprint.linears)
        self._embedding = embeddings(blueprint.embedding)
        rotaries = {layer.rotary for layer in blueprint.layers if layer.rotary is not None}
        self._tables = {rotary: rotary.tables(positions) for rotary in rotaries}
        shape = Shape(
            layers=len(blueprint.layers),
            hidden=blueprint.hidden,
            heads=blueprint.heads,
            kv_heads=blueprint.kv_heads,
            head_dim=blueprint.head_dim,
            vocab=blueprint.vocab,
            arithmetic=ARITHMETICS[arithmetic],
            held=held,
            half_embedding=self._embedding.dtype == torch.bfloat16,
            kv_format=KV_FORMATS[kv_dtype],
            block_size=block_size,
            embedding_scale=blueprint.embedding_scale,
            residual_scale=blueprint.residual_scale,
            logit_scale=blueprint.logit_scale,
            logit_cap=blueprint.logit_cap,
        )
        self._handle = c_void_p()
        team.call(
            self._library.stack_create,
            team.handle,
            shape,
            self._embedding.data_ptr(),
            ctypes.byref(self._handle),
        )
        self.close = team.when_gone(self, self._library.stack_destroy, self._handle)
        for index, layer in enumerate(blueprint.layers):
            self._set_layer(index, layer, blueprint)
        self._set_head(blueprint)
        self._adapters = 0

    @property
    def instructions(self) -> str:
        """What the library was compiled for, for people."""
        text: bytes = self._library.stack_instructions()
        return text.decode()

    @property
    def weight_bytes(self) -> int:
        """Of all matrices: what a step reads at least."""
        size: int = self._library.stack_weight_bytes(self._handle)
        return size

    @property
    def weight_kind(self) -> str:
        """How they are held, for people."""
        if self._held in ROUNDED:
            return ROUNDED[self._held]
        if self._coded:
            return "with codes of 4 bits as they were stored"
        if self.weight_bytes >= 4 * self._numbers:
            return "in float32"
        whole = self._arithmetic == torch.float32
        return "in bfloat16, multiplied as float32" if whole else "in bfloat16"

    def round_to(self, kv_dtype: torch.dtype, arithmetic: torch.dtype) -> None:
        """Gives the pool back. The weights stay, so int8 is neither left nor come to."""
        assert torch.int8 not in (arithmetic, self._arithmetic)
        self.allocate(0)
        formats = ARITHMETICS[arithmetic], KV_FORMATS[kv_dtype]
        self.team.call(self._library.stack_round_to, self._handle, *formats)
        self._arithmetic = arithmetic

    def set_adapters(self, adapters: NativeAdapters) -> None:
        """Copies of theirs: in bfloat16 where that loses nothing, else in float32."""
        held = Weights()
        for number, layer, weights in adapters.weights(held):
            places = number, len(adapters), layer
            told = ctypes.byref(weights)
            self.team.call(self._library.stack_set_adapter, self._handle, *places, told)
        self._adapters = len(adapters)

    def allocate(self, blocks: int) -> None:
        """A pool of zeros for all layers, whose pages are taken ahead while nothing is computed."""
        self._blocks = 0
        self.team.call(self._library.stack_allocate, self._handle, blocks)
        self._blocks = blocks

    def forward(
        self, ids: Tensor, spans: Tensor, adapters: Tensor, tables: Tensor, keep: Tensor
    ) -> Tensor:
        """Logits [len(keep), vocab] after the flat tokens ``keep``; gone at the next call.

        Int64: ``ids`` [tokens] and ``keep``. Int32: ``spans`` [sequences, 4] of first flat token,
        first position, count and first place in ``tables``, which holds the blocks of all
        sequences, and ``adapters`` [sequences], of which -1 is none. Raises IndexError for ids
        beyond the vocabulary.
        """
        assert ids.dtype == keep.dtype == torch.int64
        logits = self._room(len(keep))
        step = Step(
            ids=ids.data_ptr(),
            spans=spans.data_ptr(),
            adapters=adapters.data_ptr(),
            tables=tables.data_ptr(),
            keep=keep.data_ptr(),
            logits=logits.data_ptr(),
            tokens=len(ids),
            sequences=len(spans),
            kept=len(keep),
        )
        self._check(step, len(tables))
        self.team.call(self._library.stack_forward, self._handle, ctypes.byref(step))
        return logits

    def _check(self, step: Step, places: int) -> None:
        """The library reads and writes wherever it is told to."""
        assert self.close.alive
        ids = self._embedding.shape[0]
        if not self._library.step_knows(step, ids):
            raise IndexError(f"a token id is not within the {ids} of the model")
        limits = self._positions, self._block_size, places, self._blocks, self._adapters
        assert self._library.step_fits(step, *limits)

    def _room(self, rows: int) -> Tensor:
        """Always the same memory: fresh pages cost more than what is written to them."""
        if self._logits.shape[0] < rows:
            self._logits = torch.empty(rows, self.vocab)
        return self._logits[:rows]

    def _set_layer(self, index: int, layer: LayerParts, blueprint: Blueprint) -> None:
        held, sinks = self._weights(), layer.options.sinks
        tables = () if layer.rotary is None else self._tables[layer.rotary]
        weights = LayerWeights(
            **held.linears(layer.linears),
            **{name: norm.weights for name, norm in layer.norms.items()},
            **{name: table.data_ptr() for name, table in zip(TABLES, tables, strict=False)},
            sinks=None if sinks is None else held.pointer(sinks.detach().float()),
            rotary_dim=2 * tables[0].shape[1] if tables else 0,
            norms_last=layer.norms_last,
            parallel=layer.parallel,
            window=layer.options.window or 0,
            scale=layer.options.scale,
            cap=layer.options.softcap or 0,
        )
        self.team.call(self._library.stack_set_layer, self._handle, index, ctypes.byref(weights))
        self._set_half(index, layer.feed_forward)

    def _set_half(self, index: int, half: Half) -> None:
        held, library = self._weights(), self._library
        if isinstance(half, Gated):
            gated = ctypes.byref(gated_weights(half, held))
            self.team.call(library.stack_set_gated, self._handle, index, gated)
        else:
            experts = ctypes.byref(experts_weights(half, held))
            self.team.call(library.stack_set_experts, self._handle, index, experts)

    def _set_head(self, blueprint: Blueprint) -> None:
        held = self._weights()
        weight = ctypes.byref(held.linear(Rows(blueprint.head)))
        norm = ctypes.byref(blueprint.norm.weights)
        self.team.call(self._library.stack_set_head, self._handle, norm, weight)

    def _weights(self) -> Weights:
        """Those that stay in place live as long as the stack, others while they are packed."""
        return self._kept if self._held == Held.IN_PLACE else Weights()
