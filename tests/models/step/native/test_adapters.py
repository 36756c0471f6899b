"""Adapters in the native kernels: merged weights' logits, whatever the weights are held as."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from models.step.model import StepModel
from models.step.paged import PagedModel
from models.step.probe import ProbeSpan
from tests.models.step.adapting import ALL, ATTENTION, adapter_folder, adapters_of, merged
from tests.models.step.driving import Driver, sequence
from tests.models.step.native.stacking import FITTING, prompt
from tests.models.step.tiny import prompts, served, tiny

NEW = 8
FUSED = ["qkv_proj", "o_proj", "gate_up_proj", "down_proj"]
NEOX = ["query_key_value", "dense", "dense_h_to_4h", "dense_4h_to_h"]
MODES: list[tuple[torch.dtype, dict[str, Any], float]] = [
    (torch.float32, {}, 1e-5),
    (torch.float32, {"kv_cache_dtype": "bfloat16"}, 0.01),
    (torch.bfloat16, {}, 0.02),
    (torch.float32, {"dtype": "int8"}, 0.03),
    (torch.float32, {"dtype": "int4"}, 0.3),
]


def native(model: Any, *folders: Path, **wishes: Any) -> PagedModel:
    adapters = adapters_of(model, *folders)
    made = served(model, adapters=adapters, block_size=16, kv_cache_gib=0.01, **wishes)
    assert made.describe()["kernels"].startswith("paged, native (")
    assert isinstance(made, PagedModel)
    return made


def logits(model: PagedModel, ids: list[int], adapter: str | None) -> Tensor:
    blocks = tuple(range(-(-len(ids) // 16)))
    return model.logits(ProbeSpan(0, len(ids), blocks, adapter), ids)


@torch.inference_mode()
def eager(model: Any, ids: list[int]) -> Tensor:
    found: Tensor = model(input_ids=torch.tensor([ids]), use_cache=False).logits[0]
    return found.float()


def error(ours: Tensor, theirs: Tensor) -> float:
    return float((ours - theirs).norm() / theirs.norm())


@pytest.mark.parametrize(("dtype", "wishes", "most"), MODES)
def test_logits_equal_those_of_merged_weights(
    tmp_path: Path, dtype: torch.dtype, wishes: dict[str, Any], most: float
) -> None:
    model: Any = tiny("llama", **FITTING, dtype=dtype, initializer_range=0.1)
    folders = [adapter_folder(tmp_path / n, model, ALL, seed=i) for i, n in enumerate("ab")]
    ids = prompt(40)
    expected = [eager(merged(model.float(), folder), ids) for folder in folders]
    plain = eager(model, ids)
    assert all(error(one, plain) > 0.5 for one in expected)
    step_model = native(model.to(dtype), *folders, **wishes)
    for adapter, theirs in zip(("a", "b", None), (*expected, plain), strict=True):
        assert error(logits(step_model, ids, adapter), theirs) < most


@pytest.mark.parametrize(
    ("model_type", "targets", "changes"),
    [
        ("llama", ["k_proj"], {}),
        ("llama", ["up_proj", "o_proj"], {"attention_bias": True}),
        ("phi3", FUSED, {}),
        ("gpt_neox", NEOX, {"num_key_value_heads": 4}),
        ("gemma3_text", ALL, {}),
        ("glm", [*ATTENTION, "gate_up_proj", "down_proj"], {}),
        ("cohere", ALL, {}),
        ("qwen3_moe", ATTENTION, {"num_experts": 8, "moe_intermediate_size": 48}),
        ("starcoder2", [*ATTENTION, "c_fc", "c_proj"], {}),
    ],
)
def test_linear_layers_of_all_shapes_are_adapted(
    tmp_path: Path, model_type: str, targets: list[str], changes: dict[str, Any]
) -> None:
    model = tiny(model_type, **{**FITTING, **changes})
    folder = adapter_folder(tmp_path / "a", model, targets)
    ids = prompt(20)
    expected, plain = eager(merged(model, folder), ids), eager(model, ids)
    step_model = native(model, folder)
    assert error(logits(step_model, ids, "a"), expected) < 1e-5
    assert error(logits(step_model, ids, None), plain) < 1e-5


@pytest.mark.parametrize("rank", [1, 5, 16, 40])
def test_ranks(tmp_path: Path, rank: int) -> None:
    model = tiny("llama", **FITTING)
    wide = adapter_folder(tmp_path / "wide", model, ALL, r=rank, lora_alpha=2 * rank)
    folder = adapter_folder(
        tmp_path / "a", model, ALL, r=3, lora_alpha=6, rank_pattern={"v_proj": rank}
    )
    ids = prompt(20)
    expected = eager(merged(model, wide), ids)
    step_model = native(model, wide, folder)
    assert error(logits(step_model, ids, "wide"), expected) < 1e-5


@pytest.mark.parametrize(("dtype", "wishes", "most"), MODES)
def test_seeded_texts_are_the_same_alone_and_among_neighbours(
    tmp_path: Path, dtype: torch.dtype, wishes: dict[str, Any], most: float
) -> None:
    model = tiny("llama", **FITTING, dtype=dtype, initializer_range=0.1)
    folders = [adapter_folder(tmp_path / n, model, ALL, seed=i) for i, n in enumerate("ab")]
    step_model = native(model, *folders, **wishes)
    asked, names = prompts(6), ("a", None, "b", "a", None, "b")
    pairs = [*zip(asked, names, strict=True)]
    together = Driver(step_model, preempt=0.2).run([sequence(p, adapter=n) for p, n in pairs], NEW)
    assert len({*map(tuple, together)}) == len(asked)
    for (p, n), answer in zip(pairs, together, strict=True):
        assert Driver(step_model, seed=3).run([sequence(p, adapter=n)], NEW) == [answer]


@pytest.mark.parametrize(("dtype", "wishes", "most"), MODES)
def test_a_row_is_the_same_to_the_bit_whatever_shares_its_step(
    tmp_path: Path, dtype: torch.dtype, wishes: dict[str, Any], most: float
) -> None:
    """Whole prompts of many rows, and an adapter that others in the step have or have not."""
    model = tiny("llama", **FITTING, dtype=dtype, initializer_range=0.1)
    folders = [adapter_folder(tmp_path / n, model, ALL, seed=i) for i, n in enumerate("ab")]
    forward = native(model, *folders, **wishes)._forward
    asked = [(prompt(n, seed=n), name) for n, name in ((33, "a"), (1, "b"), (50, None), (97, "a"))]

    def step(*chosen: int) -> list[Tensor]:
        spans = [
            ProbeSpan(0, len(ids), tuple(range(i * 7, i * 7 + 7)), name)
            for i in chosen
            for ids, name in [asked[i]]
        ]
        layout = forward.layout(spans)
        ids = torch.tensor([id for i in layout.order for id in asked[chosen[i]][0]])
        found = forward(layout, ids, torch.arange(layout.tokens)).clone()
        return [found[at : at + s.count] for at, s in zip(layout.starts, spans, strict=True)]

    together = step(3, 1, 0, 2)
    for i, chosen in enumerate((3, 1, 0, 2)):
        (alone,) = step(chosen)
        assert torch.equal(alone, together[i])


def test_experts_that_are_adapted_are_left_to_torch(tmp_path: Path) -> None:
    few = {"num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 48}
    model = tiny("qwen2_moe", **FITTING, **few, shared_expert_intermediate_size=48)
    folder = adapter_folder(tmp_path / "a", model, ["q_proj", "down_proj"])
    ids = prompt(20)
    expected = eager(merged(model, folder), ids)
    adapters = adapters_of(model, folder)
    made: StepModel = served(model, adapters=adapters, block_size=16, kv_cache_gib=0.01)
    assert "they adapt no model.layers.0.mlp.shared_expert.down_proj" in made.describe()["kernels"]
    assert isinstance(made, PagedModel)
    assert error(logits(made, ids, "a"), expected) < 1e-5
