"""The matrices of LoRA adapters, checked against the model that they are of."""

from __future__ import annotations

import re
from collections import abc
from dataclasses import dataclass
from pathlib import Path

import torch.nn.functional as F
from safetensors.torch import load_file
from torch import Tensor, nn
from transformers import PreTrainedModel
from transformers.pytorch_utils import Conv1D

from models.lora import ALL_LINEAR, WEIGHTS, AdapterError, Lora
from models.step.grouped import GroupedLinear
from models.step.widen import computed_in

LINEARS = (nn.Linear, GroupedLinear, Conv1D)
OF_THE_BASE = ("tokenizer.json", "chat_template.jinja")
_KEY = re.compile(r"base_model\.model\.(?P<module>.+)\.lora_(?P<which>[AB])\.weight")


@dataclass(frozen=True, slots=True)
class LowRank:
    """What is added to a linear layer: ``outer @ inner @ x``, times ``scale``."""

    inner: Tensor  # [rank, inputs], PEFT's A
    outer: Tensor  # [outputs, rank], PEFT's B
    scale: float

    def __call__(self, rows: Tensor) -> Tensor:
        """[rows, inputs] to [rows, outputs]."""
        inner, outer = self.inner.to(rows.dtype), self.outer.to(rows.dtype)
        return F.linear(F.linear(rows, inner) * self.scale, outer)


@dataclass(frozen=True, slots=True)
class Adapter:
    """``parts`` are by the names of the linear layers that they stand beside."""

    name: str
    parts: abc.Mapping[str, LowRank]
    about: str  # for people


def load_adapters(
    loras: abc.Sequence[Lora], model: PreTrainedModel, base: Path
) -> tuple[Adapter, ...]:
    """On the model's device, in what it computes in. ``base`` is the folder of the model.

    Raises AdapterError that names the adapter, and what does not fit.
    """
    return tuple(_load(lora, model, base) for lora in loras)


def _load(lora: Lora, model: PreTrainedModel, base: Path) -> Adapter:
    try:
        parts = _parts(lora, model, load_file(lora.folder / WEIGHTS))
    except ValueError as error:
        raise AdapterError(f"adapter {lora.name!r}: {error}") from error
    ranks = sorted({len(part.inner) for part in parts.values()})
    rank = f"rank {ranks[0]}" if len(ranks) == 1 else f"ranks {ranks[0]} to {ranks[-1]}"
    unused = "".join(
        f", its own {name} not used" for name in OF_THE_BASE if _differs(lora, base, name)
    )
    return Adapter(lora.name, parts, f"{lora.name} ({rank}, {len(parts)} layers{unused})")


def _parts(
    lora: Lora, model: PreTrainedModel, tensors: abc.Mapping[str, Tensor]
) -> dict[str, LowRank]:
    linears = {name: one for name, one in model.named_modules() if isinstance(one, LINEARS)}
    head = model.get_output_embeddings()  # type: ignore[no-untyped-call]
    found: dict[str, dict[str, Tensor]] = {}
    for key, tensor in tensors.items():
        match = _KEY.fullmatch(key)
        if match is None:
            raise ValueError(f"{key} is not supported: only matrices beside linear layers are")
        if (module := match["module"]) not in linears:
            raise ValueError(f"{type(model).__name__} has no linear layer {module}")
        if linears[module] is head:
            raise ValueError(f"it adapts the output layer {module}, which is not supported")
        found.setdefault(module, {})[match["which"]] = tensor.to(model.device, computed_in(model))
    wished = {name for name, linear in linears.items() if lora.targets(name)}
    if str(lora.config["target_modules"]).lower() == ALL_LINEAR:
        wished -= {name for name in wished if linears[name] is head}
    if lacking := sorted(wished - found.keys()):
        raise ValueError(f"{WEIGHTS} lacks matrices for {lacking[0]}")
    if not found:
        raise ValueError(f"{WEIGHTS} is empty")
    return {name: _low_rank(lora, name, linears[name], both) for name, both in found.items()}


def _low_rank(lora: Lora, name: str, linear: nn.Module, both: abc.Mapping[str, Tensor]) -> LowRank:
    rank, (outputs, inputs) = lora.rank_of(name), _shape(linear)
    shapes = {which: tuple(tensor.shape) for which, tensor in both.items()}
    expected = {"A": (rank, inputs), "B": (outputs, rank)}
    if shapes != expected:
        raise ValueError(f"its matrices for {name} are {shapes}, and must be {expected}")
    return LowRank(both["A"], both["B"], lora.scale_of(name))


def _shape(linear: nn.Module) -> tuple[int, int]:
    if isinstance(linear, Conv1D):
        inputs, outputs = linear.weight.shape
        return outputs, inputs
    assert isinstance(linear, nn.Linear | GroupedLinear)
    return linear.out_features, linear.in_features


def _differs(lora: Lora, base: Path, name: str) -> bool:
    own, its = lora.folder / name, base / name
    return own.is_file() and not (its.is_file() and own.read_bytes() == its.read_bytes())
