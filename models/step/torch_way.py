"""A model's own modules over a pool of blocks, with paged attention in their midst."""

from __future__ import annotations

from collections import abc

import torch
from transformers import PreTrainedModel

from models.step import cache
from models.step.adapting import Adapting
from models.step.cache import LayerShape
from models.step.native.rows import RowKernels, row_kernels
from models.step.paged import PagedForward
from models.step.weights import settled_weights


class TorchWay:
    """See ``Way``. ``kv_dtype``: None for what is computed in."""

    detail = ""

    def __init__(
        self,
        name: str,
        model: PreTrainedModel,
        layers: abc.Sequence[LayerShape],
        block_size: int,
        kv_dtype: torch.dtype | None,
        adapting: Adapting | None = None,
        *,
        int8: bool,
    ) -> None:
        self.name = name  # sdpa or varlen
        self._int8 = int8
        self.block_size = block_size
        self._model = model
        self._adapting = adapting or Adapting(model, ())
        self._seen = layers
        self._layers = [layer.stored_as(kv_dtype) for layer in layers]
        self.bytes_per_token = sum(layer.bytes_per_token for layer in self._layers)
        self.kv_dtypes = tuple(dict.fromkeys(layer.dtype for layer in self._layers))

    def try_out(self, blocks: int) -> PagedForward:
        exact = torch.float32 if self._model.dtype == torch.float32 else None
        layers = [layer.stored_as(exact) for layer in self._seen]
        cache.allocate(layers, blocks, self.block_size, self._model.device)
        return self._forward()

    @property
    def has_float32(self) -> bool:
        return self.name == "sdpa"

    def try_in_float32(self, blocks: int) -> PagedForward:
        return self.try_out(blocks)

    def close(self) -> None:
        cache.release(self._seen)

    def try_rounded(self, blocks: int) -> None:
        """Rounding changes the model itself."""

    def row_kernels(self) -> RowKernels | None:
        return row_kernels(self._model.device)

    def settle(self) -> str:
        settled = settled_weights(self._model, int8=self._int8)
        self._adapting.attach()
        return settled

    def open(self, blocks: int) -> PagedForward:
        # One more than is handed out, for what pads recorded steps.
        cache.allocate(self._layers, blocks + 1, self.block_size, self._model.device)
        return self._forward()

    def _forward(self) -> PagedForward:
        varlen = self.name == "varlen"
        return PagedForward(self._model, self.block_size, self._adapting, varlen=varlen)
