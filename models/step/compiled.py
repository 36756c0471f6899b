"""Recording decode steps whose layers torch has compiled: what lies between products is fused.

All layers of a kind share their code, and all numbers of sequences but one. The modules themselves
are as before once a step is recorded.
"""

from __future__ import annotations

from collections import abc
from contextlib import contextmanager
from typing import Any, TypeVar

import torch
from torch._inductor import config
from transformers import PreTrainedModel
from transformers.modeling_layers import GradientCheckpointingLayer
from transformers.modeling_utils import AttentionInterface

from models.step.attention import PAGED, paged_attention
from models.step.capture import Capture, Replay

T = TypeVar("T")


class CompiledLayers:
    """A ``Capture`` by another one. The first steps recorded take the time to compile them."""

    note = "of compiled layers"

    def __init__(
        self, capture: Capture, model: PreTrainedModel, *, backend: str = "inductor"
    ) -> None:
        """``backend`` is of ``torch.compile``."""
        self._capture = capture
        self._layers = [m for m in model.modules() if isinstance(m, GradientCheckpointingLayer)]
        self._calls = [
            torch.compile(layer._call_impl, backend=backend, dynamic=True) for layer in self._layers
        ]

    def record(self, run: abc.Callable[[], T]) -> tuple[T, Replay]:
        with self._compiled():
            return self._capture.record(run)

    def memory_used(self) -> int:
        return self._capture.memory_used()

    @contextmanager
    def _compiled(self) -> abc.Iterator[None]:
        """Only here: what first ran under a dispatch mode would never be compiled."""
        for layer, call in zip(self._layers, self._calls, strict=True):
            layer._compiled_call_impl = call
        whole: Any = torch.compiler.disable(paged_attention)  # type: ignore[no-untyped-call]
        AttentionInterface.register(PAGED, whole)
        try:
            with config.patch(compile_threads=1):  # else processes stay behind
                yield
        finally:
            for layer in self._layers:
                layer._compiled_call_impl = None
            AttentionInterface.register(PAGED, paged_attention)
