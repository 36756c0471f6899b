"""Linear layers with weights in 8 bits, in place of any transformers model's own after loading.

Each row of the input is scaled by its own largest value, so that what a row becomes depends on
nothing else in the step, to the bit. Weights have one scale for each output.
"""

from __future__ import annotations

import warnings
from collections import abc
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel
from transformers.pytorch_utils import Conv1D

FEWEST = 64  # inputs or outputs; below it there is little to win
ROUTERS = frozenset({"gate", "router", "shared_expert_gate"})  # a rounded one picks other experts
ENGINE = "fbgemm"


class Packed(Protocol):
    """Quantised weights in the order that their kernel wants."""

    nbytes: int

    def __call__(self, rows: Tensor) -> Tensor:
        """[rows, inputs] float32 to [rows, outputs]."""
        ...


class Int8Linear(nn.Module):
    """In place of ``nn.Linear``."""

    def __init__(self, packed: Packed, inputs: int, outputs: int) -> None:
        super().__init__()
        self.packed = packed
        self.in_features = inputs
        self.out_features = outputs

    def forward(self, values: Tensor) -> Tensor:
        rows = self.packed(values.reshape(-1, self.in_features))
        return rows.view(*values.shape[:-1], self.out_features)


class FbgemmWeights:
    """``Packed`` for the kernels that torch brings for x86."""

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        self.nbytes = weight.numel() + 4 * len(weight)
        scales = (weight.abs().amax(1) / 127).clamp_min(1e-12).double()
        zeros = torch.zeros(len(weight), dtype=torch.int64)
        with warnings.catch_warnings():  # of a removal that the pinned torch has not made
            warnings.simplefilter("ignore")
            quantised = torch.quantize_per_channel(weight, scales, zeros, 0, torch.qint8)
        torch.backends.quantized.engine = ENGINE
        self._packed: Any = torch.ops.quantized.linear_prepack(quantised, None)
        self._bias = bias
        # Without VNNI two products of full 8 bits would overflow the 16 that hold their sum.
        self._levels = 127 if torch.cpu._is_vnni_supported() else 63

    def __call__(self, rows: Tensor) -> Tensor:
        largest = torch.linalg.vector_norm(rows, float("inf"), -1, keepdim=True).clamp_min_(1e-30)
        outputs: Tensor = torch.ops.quantized.linear_with_input_q_dq_qweight_dq_output_fp32(
            rows / largest, 1 / self._levels, self._levels + 1, self._packed
        )
        outputs.mul_(largest)
        return outputs if self._bias is None else outputs.add_(self._bias)


def pack(weight: Tensor, bias: Tensor | None) -> Packed:
    """``weight`` [outputs, inputs] in 8 bits. Raises ValueError where nothing computes with it."""
    if ENGINE not in torch.backends.quantized.supported_engines:
        raise ValueError(f"dtype is set to int8, but this torch has no {ENGINE} (x86 with AVX2)")
    return FbgemmWeights(weight.detach().float(), None if bias is None else bias.detach().float())


def quantise(
    model: PreTrainedModel, pack: abc.Callable[[Tensor, Tensor | None], Packed] = pack
) -> str:
    """Replaces the linear layers of ``model``. What was done, for people.

    Skipped are routers, tiny layers, and weights that are no linear layer: embeddings, which stay
    as they are where the output layer shares them, and experts held in one tensor.
    """
    skipped: dict[str, None] = {}
    count = weights = 0
    for name, module in list(model.named_modules()):
        if type(module) not in (nn.Linear, Conv1D):
            continue
        weight = _weight(module)
        if min(weight.shape) < FEWEST or name.rpartition(".")[2] in ROUTERS:
            skipped[name.rpartition(".")[2]] = None
            continue
        outputs, inputs = weight.shape
        replacement = Int8Linear(pack(weight, module.bias), inputs, outputs)
        model.set_submodule(name, replacement)
        count, weights = count + 1, weights + weight.numel()
    kept = f"; not {', '.join(skipped)}" if skipped else ""
    return f"{count} linear layers with {weights / 1e6:.0f} M weights in int8{kept}"


def _weight(module: nn.Module) -> Tensor:
    """[outputs, inputs]."""
    weight = module.weight
    assert isinstance(weight, Tensor)
    return weight.T.contiguous() if isinstance(module, Conv1D) else weight
