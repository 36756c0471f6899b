"""Any transformers causal model over its own cache, one sequence at a time.

Right for every architecture that ``generate`` serves, hybrid and recurrent ones included; slow.
"""

from __future__ import annotations

import inspect
from collections import abc
from typing import Any

import torch
from torch import Tensor
from transformers import DynamicCache, PreTrainedModel

State = dict[str, Any]  # the keyword arguments that ``generate`` carries from token to token


class CachedModel:
    """A ``PlainModel``. Uses the hooks through which ``generate`` calls a model."""

    def __init__(self, model: PreTrainedModel, max_context: int) -> None:
        self._model: Any = model
        self._config = model.config.get_text_config(decoder=True)
        self.vocab_size: int = self._config.vocab_size
        self.max_context = max_context

    def prefill(self, tokens: list[int]) -> tuple[State, Tensor]:
        ids = torch.tensor([tokens], device=self._model.device)
        state: State = {"use_cache": True}
        if self._model._supports_logits_to_keep():
            state["logits_to_keep"] = 1
        if "position_ids" in inspect.signature(self._model.forward).parameters:
            state["position_ids"] = self._model._prepare_position_ids_for_generation(ids, state)
        if self._model._supports_default_dynamic_cache():
            state["cache"] = DynamicCache(config=self._config)
        return self._forward(ids, state, is_first_iteration=True)

    def decode(self, state: State, token: int) -> tuple[State, Tensor]:
        ids = torch.tensor([[token]], device=self._model.device)
        return self._forward(ids, state, next_sequence_length=1)

    def _forward(self, ids: Tensor, state: State, **how: Any) -> tuple[State, Tensor]:
        inputs = self._model.prepare_inputs_for_generation(ids, **how, **state)
        output = self._model(**inputs, return_dict=True)
        state = self._model._update_model_kwargs_for_generation(output, state)
        return state, output.logits[0, -1]


@torch.inference_mode()
def bytes_per_sequence(model: CachedModel, tokens: int) -> int:
    """What the cache of a sequence of ``tokens`` takes, from two short ones."""
    short, long = (_state_bytes(model.prefill([0] * n)[0]) for n in (8, 16))
    return short + (long - short) * max(0, tokens - 8) // 8


def _state_bytes(state: State) -> int:
    cache = state.get("cache")
    return sum(
        tensor.nbytes
        for layer in getattr(cache, "layers", ())
        for tensor in _tensors(vars(layer).values())
    )


def _tensors(values: abc.Iterable[Any]) -> abc.Iterator[Tensor]:
    for value in values:
        if isinstance(value, Tensor):
            yield value
        elif isinstance(value, list | tuple):
            yield from _tensors(value)
        elif isinstance(value, dict):
            yield from _tensors(value.values())
