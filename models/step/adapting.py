"""Adapters beside a model's own modules: a hook on each linear layer adds to its rows."""

from __future__ import annotations

from collections import abc
from contextlib import contextmanager
from functools import partial
from typing import Any

from torch import Tensor, nn
from transformers import PreTrainedModel

from models.step.adapters import Adapter, LowRank
from models.step.placement import AdaptedRows

_Parts = abc.Mapping[str, LowRank]  # of one linear layer, by adapter


class Adapting:
    """Adds nothing but within ``of``, for one thread at a time."""

    def __init__(self, model: PreTrainedModel, adapters: abc.Sequence[Adapter]) -> None:
        self.adapters = adapters
        self._model = model
        self._rows: abc.Sequence[AdaptedRows] = ()
        self._tokens = 0
        self._parts: dict[str, dict[str, LowRank]] = {}
        for adapter in adapters:
            for name, part in adapter.parts.items():
                self._parts.setdefault(name, {})[adapter.name] = part

    def attach(self) -> None:
        """Also to modules that have taken the place of others since."""
        for name, parts in self._parts.items():
            module = self._model.get_submodule(name)
            if "adapted" not in vars(module):
                vars(module)["adapted"] = module.register_forward_hook(partial(self._add, parts))

    @contextmanager
    def of(self, rows: abc.Sequence[AdaptedRows], tokens: int) -> abc.Iterator[None]:
        """Within it, the model computes so many tokens, of which ``rows`` are adapted."""
        self._rows, self._tokens = rows, tokens
        try:
            yield
        finally:
            self._rows = ()

    def _add(self, parts: _Parts, module: nn.Module, given: Any, output: Tensor) -> Tensor:
        wanted = [(parts[one.adapter], one.rows) for one in self._rows if one.adapter in parts]
        if not wanted:
            return output
        values = given[0].reshape(-1, given[0].shape[-1])
        if len(values) != self._tokens:
            raise ValueError(f"an adapted {type(module).__name__} gets other rows than the step's")
        output = output.contiguous()
        sums = output.view(-1, output.shape[-1])
        for part, rows in wanted:
            if rows is None:
                sums += part(values)
            else:
                sums.index_add_(0, rows, part(values.index_select(0, rows)))
        return output
