from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch._dynamo.utils import counters
from transformers import PreTrainedModel

from models.step import varlen
from models.step.compiled import CompiledLayers
from models.step.paged import PagedModel
from tests.models.step.driving import Driver, sequence
from tests.models.step.replaying import Replays, graphed
from tests.models.step.tiny import greedy, prompts, tiny

NEW = 6


@pytest.fixture(autouse=True)
def _fresh(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(varlen, "PRECISIONS", (torch.float32,))  # as the kernel of these tests
    torch._dynamo.reset()
    counters.clear()
    yield
    torch._dynamo.reset()


def recorded(model: PreTrainedModel, backend: str = "eager") -> PagedModel:
    """By layers that are compiled as far as to operations, which ``Replays`` can note."""
    paged = graphed(model, graphs=False)
    paged.record_decoding(CompiledLayers(Replays(), model, backend=backend), Replays())
    return paged


@pytest.mark.parametrize(
    ("model_type", "changes"),
    [("llama", {}), ("qwen3", {"head_dim": 16}), ("gemma2", {"head_dim": 16})],
)
def test_compiled_steps_equal_full_recomputation(model_type: str, changes: dict[str, Any]) -> None:
    changes = changes | ({"attn_logit_softcapping": None} if model_type == "gemma2" else {})
    model = tiny(model_type, **changes)
    paged = recorded(model)
    assert paged.describe()["graphs"].endswith("GiB; of compiled layers")
    assert counters["stats"]["unique_graphs"] > 0
    asked = prompts(4, high=20)
    driver = Driver(paged, preempt=0.1, from_slot=0.5)
    assert driver.run([sequence(p) for p in asked], NEW) == [greedy(model, p, NEW) for p in asked]


def test_all_layers_share_what_is_compiled() -> None:
    compiled = []
    for layers in (2, 5):
        torch._dynamo.reset()
        counters.clear()
        recorded(tiny("llama", num_hidden_layers=layers))
        compiled.append(counters["stats"]["unique_graphs"])
    assert compiled[0] == compiled[1]


def test_where_nothing_compiles_the_modules_are_recorded() -> None:
    model = tiny("llama")
    fact = recorded(model, backend="broken").describe()["graphs"]
    assert fact.startswith("1, 2, 4, 6 sequences: ")
    assert "; none of compiled layers (6 sequences: " in fact
    assert all(m._compiled_call_impl is None for m in model.modules())


@torch._dynamo.register_backend
def broken(graph: Any, inputs: Any) -> Any:
    raise RuntimeError("no compiler")
