from __future__ import annotations

import pytest
import torch
from torch import Tensor

from models.step.attention import PAGED
from models.step.native.build import NoNative
from models.step.native.rotation import Rotary, Turn, rotaries, told, turn_between
from models.step.trace import TOKENS, Trace
from tests.models.step.native.stacking import FITTING
from tests.models.step.tiny import tiny


@pytest.fixture(scope="module")
def rotary() -> Rotary:
    model = tiny("llama", **FITTING)
    model.set_attn_implementation(PAGED)
    (found,) = rotaries(model, Trace(model))
    return found


@pytest.fixture
def heads() -> Tensor:
    return torch.randn(TOKENS, 3, 20, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("pairs", [False, True])
def test_how_heads_were_turned_is_found(rotary: Rotary, heads: Tensor, pairs: bool) -> None:
    turned = Turn(rotary, pairs).applied(heads)
    assert torch.equal(turned[..., 16:], heads[..., 16:])
    assert turn_between(heads, turned.bfloat16(), [rotary]) == Turn(rotary, pairs)


def test_what_was_not_turned_is_told(rotary: Rotary, heads: Tensor) -> None:
    assert turn_between(heads, heads.bfloat16(), [rotary]) is None


def test_what_was_turned_otherwise_is_refused(rotary: Rotary, heads: Tensor) -> None:
    back = Turn(rotary, False).applied(heads.flip(0)).flip(0)
    for known in ([], [rotary], [rotary, rotary]):
        with pytest.raises(NoNative, match="how it turns"):
            turn_between(heads, back, known)
    with pytest.raises(NoNative, match="how it turns"):
        turn_between(heads, Turn(rotary, False).applied(heads), [rotary, rotary])


def test_tables_are_those_that_each_layer_was_given() -> None:
    """They may differ in slow frequencies only, which hardly turn the first positions."""
    kinds = ["sliding_attention", "full_attention"]
    thetas = {kind: {"rope_type": "default", "rope_theta": 1e4 + n} for n, kind in enumerate(kinds)}
    model = tiny("gemma3_text", **FITTING, layer_types=kinds, rope_parameters=thetas)
    model.set_attn_implementation(PAGED)
    trace = Trace(model)
    known = rotaries(model, trace)
    layers = [told(trace.calls(one.module)[-1], known) for one in trace.attended]
    assert [[one.call.args[2] for one in told] for told in layers] == [[kind] for kind in kinds]
