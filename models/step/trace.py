"""What passed between a model's modules while it read a few tokens."""

from __future__ import annotations

from collections import abc
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from models.step.attention import Options, attending
from models.step.cache import LayerShape
from models.step.ordinary import ordinary_ids

TOKENS = 13  # a number of heads that no model has, so that shapes tell them apart


@dataclass(frozen=True, slots=True, eq=False)
class Call:
    """Of a module."""

    args: tuple[Any, ...]
    kwargs: abc.Mapping[str, Any]
    result: Any

    @property
    def given(self) -> Tensor | None:
        """The first tensor that it was called with."""
        return _first((*self.args, *self.kwargs.values()))

    @property
    def returned(self) -> Tensor | None:
        return _first(self.result if isinstance(self.result, tuple) else (self.result,))


@dataclass(frozen=True, slots=True, eq=False)
class Attended:
    """One layer's queries [1, heads, tokens, dim], as they were compared with keys, and values."""

    module: nn.Module
    query: Tensor
    value: Tensor
    options: Options


class Trace:
    """Of one forward pass whose attention is paged, and gives zeros."""

    ids: Tensor  # [tokens]
    logits: Tensor  # [tokens, vocabulary]
    layers: list[LayerShape]  # what those that attend cache
    windows: list[int | None]  # through which they attend

    @torch.inference_mode()
    def __init__(self, model: PreTrainedModel) -> None:
        self._calls: dict[nn.Module, list[Call]] = {}
        self.attended: list[Attended] = []
        self.layers, self.windows = [], []
        vocab_size = model.config.get_text_config(decoder=True).vocab_size
        self.ids = ordinary_ids(vocab_size, (TOKENS,))[0].to(model.device)
        positions = torch.arange(TOKENS, device=model.device)[None]
        hooks = [m.register_forward_hook(self._called, with_kwargs=True) for m in model.modules()]
        try:
            with attending(self):
                output = model(input_ids=self.ids[None], position_ids=positions, use_cache=False)
        finally:
            for hook in hooks:
                hook.remove()
        self.logits = output.logits[0]

    def attend(
        self, module: nn.Module, query: Tensor, key: Tensor, value: Tensor, options: Options
    ) -> Tensor:
        """See ``Attention``."""
        shape = LayerShape(module, key.shape[1], key.shape[3], value.shape[3], value.dtype)
        self.layers.append(shape)
        self.windows.append(options.window)
        self.attended.append(Attended(module, query, value, options))
        return query.new_zeros(1, query.shape[2], query.shape[1], value.shape[3])

    @property
    def objection(self) -> str:
        """Why its layers cannot hold caches; empty if they can."""
        if not self.layers:
            return "its attention does not go through transformers' interface"
        if len({layer.module for layer in self.layers}) < len(self.layers):
            return "one attention module serves several layers"
        return ""

    def forget(self) -> None:
        """All that passed, which takes memory; the layers stay known."""
        self._calls.clear()
        self.attended.clear()

    def calls(self, module: nn.Module) -> abc.Sequence[Call]:
        return self._calls.get(module, ())

    def given(self, module: nn.Module) -> Tensor | None:
        return self._calls[module][-1].given if module in self._calls else None

    def returned(self, module: nn.Module) -> Tensor | None:
        return self._calls[module][-1].returned if module in self._calls else None

    def _called(
        self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any
    ) -> None:
        self._calls.setdefault(module, []).append(Call(args, kwargs, result))


def same(one: Tensor | None, other: Tensor | None) -> bool:
    """Whether they are the same numbers in memory, if not of the same shape."""
    if one is None or other is None:
        return False
    return one.data_ptr() == other.data_ptr() and one.numel() == other.numel()


def _first(values: abc.Iterable[Any]) -> Tensor | None:
    return next((value for value in values if isinstance(value, Tensor)), None)
