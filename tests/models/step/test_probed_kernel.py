from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.attention.varlen import varlen_attn

from models.step import varlen
from models.step.assemble import _compared
from models.step.attention import PAGED
from models.step.probe import Probe, blocks_needed
from models.step.torch_way import TorchWay
from models.step.trace import Trace
from tests.models.step.replaying import BLOCK  # registers a kernel for CPUs
from tests.models.step.tiny import tiny


@pytest.mark.parametrize("share", [1.0, 0.8])
def test_a_kernel_that_is_wrong_in_half_precision_is_not_excused(
    share: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In float32 it would not be asked at all."""
    right: Any = varlen_attn
    calls: list[Any] = []

    def kernel(query: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        calls.append(query)
        scaled: Tensor = right(query, *args, **kwargs) * share
        return scaled

    monkeypatch.setattr(varlen, "varlen_attn", kernel)
    model = tiny("llama", dtype=torch.bfloat16)
    model.set_attn_implementation(PAGED)
    way = TorchWay("varlen", model, Trace(model).layers, BLOCK, None, int8=False)
    blocks = blocks_needed(BLOCK)
    objection = _compared(model, Probe(model), way, way.try_out(blocks), blocks)
    way.close()
    assert calls
    assert bool(objection) == (share != 1.0)
