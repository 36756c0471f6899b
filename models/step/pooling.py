"""From the hidden states of an input's tokens to its one vector, as sentence-transformers does it.

All take hidden states [N, T, H] and a mask [N, T], 1 where there is a token, padding behind; and
give vectors [N, H].
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

import torch
from safetensors.torch import load_file
from torch import Tensor, nn
from torch.nn import functional

Pool = Callable[[Tensor, Tensor], Tensor]


def mean(hidden: Tensor, mask: Tensor) -> Tensor:
    weights = mask[..., None].to(hidden.dtype)
    return (hidden * weights).sum(1) / weights.sum(1)


def last(hidden: Tensor, mask: Tensor) -> Tensor:
    rows = torch.arange(len(hidden), device=hidden.device)
    return hidden[rows, mask.sum(1) - 1]


def cls(hidden: Tensor, mask: Tensor) -> Tensor:
    return hidden[:, 0]


def largest(hidden: Tensor, mask: Tensor) -> Tensor:
    return hidden.masked_fill(mask[..., None] == 0, -torch.inf).amax(1)


POOLS: dict[str, Pool] = {"mean": mean, "last": last, "cls": cls, "max": largest}


class Head(nn.Module):
    """What comes behind the pooling: linear layers, and a length of one."""

    def __init__(self, dense: Iterable[nn.Module], normalize: bool) -> None:
        super().__init__()
        self.dense = nn.Sequential(*dense)
        self.normalize = normalize

    def forward(self, vectors: Tensor) -> Tensor:
        made: Tensor = self.dense(vectors)
        return functional.normalize(made, dim=-1) if self.normalize else made


def load_dense(folder: Path, config: dict[str, object]) -> nn.Module:
    """A linear layer and its activation, from a module's folder and its config.json.

    Raises ValueError about an activation that is not known.
    """
    activations = {"Identity": nn.Identity, "Tanh": nn.Tanh, "GELU": nn.GELU, "ReLU": nn.ReLU}
    name = str(config.get("activation_function") or "torch.nn.Tanh").rpartition(".")[2]
    if name not in activations:
        raise ValueError(f"{folder.name}: the activation {name} is not supported")
    state = load_file(folder / "model.safetensors")
    out, width = state["linear.weight"].shape
    linear = nn.Linear(width, out, bias="linear.bias" in state)
    linear.load_state_dict({key.removeprefix("linear."): value for key, value in state.items()})
    return nn.Sequential(linear, activations[name]())
