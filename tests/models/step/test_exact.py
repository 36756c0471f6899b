from __future__ import annotations

import torch

from models.step.exact import can_be_exact, in_float32
from tests.models.step.tiny import tiny


def test_weights_are_float32_for_a_while_and_then_what_they_were() -> None:
    model = tiny("llama", dtype=torch.bfloat16)
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    buffers = {name: tensor.dtype for name, tensor in model.named_buffers()}
    assert torch.float32 in buffers.values()
    assert can_be_exact(model)
    with in_float32(model):
        assert model.dtype == torch.float32
        assert not can_be_exact(model)
        assert torch.equal(model.lm_head.weight, before["lm_head.weight"].float())
    for name, tensor in model.state_dict().items():
        assert tensor.dtype == before[name].dtype
        assert torch.equal(tensor, before[name])
    assert {name: tensor.dtype for name, tensor in model.named_buffers()} == buffers
