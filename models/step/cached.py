"""Any transformers causal model over its own cache, one sequence at a time.

Right for every architecture that ``generate`` serves, hybrid and recurrent ones included; slow.
"""

from __future__ import annotations

import inspect
from collections import abc
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from transformers import DynamicCache, PreTrainedModel

from models.step.ordinary import ordinary_ids

MOST_ERROR, MOST_HALF_ERROR = 1e-3, 0.05  # of logits, for what is computed in between


@dataclass(slots=True)
class State:
    """One sequence: its tokens, and the arguments that ``generate`` carries on with them."""

    ids: Tensor  # [1, tokens]
    arguments: dict[str, Any]


class CachedModel:
    """A ``PlainModel``. Uses the hooks through which ``generate`` calls a model.

    Without ``remembers`` it reads the whole text anew for every token.
    """

    def __init__(self, model: PreTrainedModel, max_context: int, *, remembers: bool = True) -> None:
        self._model: Any = model
        self._config = model.config.get_text_config(decoder=True)
        self.vocab_size: int = self._config.vocab_size
        self.max_context = max_context
        self._remembers = remembers

    def prefill(self, tokens: list[int]) -> tuple[State, Tensor]:
        ids = torch.tensor([tokens], device=self._model.device)
        arguments: dict[str, Any] = {"use_cache": self._remembers}
        if self._model._supports_logits_to_keep():
            arguments["logits_to_keep"] = 1
        if "position_ids" in inspect.signature(self._model.forward).parameters:
            positions = self._model._prepare_position_ids_for_generation(ids, arguments)
            arguments["position_ids"] = positions
        if self._remembers and self._model._supports_default_dynamic_cache():
            arguments["cache"] = DynamicCache(config=self._config)
        return self._forward(State(ids, arguments), is_first_iteration=True)

    def decode(self, state: State, token: int) -> tuple[State, Tensor]:
        more = state.ids.new_tensor([[token]])
        read = State(torch.cat((state.ids, more), 1), state.arguments)
        # The model itself takes the last token of them all, or all if it keeps no cache.
        return self._forward(read, next_sequence_length=1 if self._remembers else None)

    def _forward(self, state: State, **how: Any) -> tuple[State, Tensor]:
        arguments = state.arguments
        inputs = self._model.prepare_inputs_for_generation(state.ids, **how, **arguments)
        output = self._model(**inputs, return_dict=True)
        carried = self._model._update_model_kwargs_for_generation(output, arguments)
        return State(state.ids, carried), output.logits[0, -1]


@torch.inference_mode()
def cached_objection(model: CachedModel, dtype: torch.dtype) -> str:
    """Why sequences cannot take turns; empty if they can.

    Some models keep the state of a sequence in their modules, where the next one finds it.
    """
    first, second = (ids.tolist() for ids in ordinary_ids(model.vocab_size, (9, 5)))
    alone = _last_logits(model, first, [])
    apart = _last_logits(model, first, second)
    allowed = MOST_ERROR if dtype in (torch.float32, torch.float64) else MOST_HALF_ERROR
    error = float((apart - alone).norm() / alone.norm().clamp_min(1e-12))
    if error <= allowed:  # false for NaN too
        return ""
    return f"what another sequence reads meanwhile changes its logits by {error:.1e} of their size"


def _last_logits(model: CachedModel, tokens: list[int], meanwhile: list[int]) -> Tensor:
    state, _ = model.prefill(tokens[:-2])
    state, _ = model.decode(state, tokens[-2])
    if meanwhile:
        model.prefill(meanwhile)
    return model.decode(state, tokens[-1])[1].double()


@torch.inference_mode()
def bytes_per_sequence(model: CachedModel, tokens: int) -> int:
    """What the cache of a sequence of ``tokens`` takes, from two short ones."""
    short, long = (_state_bytes(model.prefill([0] * n)[0]) for n in (8, 16))
    return short + (long - short) * max(0, tokens - 8) // 8


def _state_bytes(state: State) -> int:
    cache = state.arguments.get("cache")
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
