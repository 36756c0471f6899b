"""Adapters beside a model's own modules compute what the model does once they are merged."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor
from transformers import PreTrainedModel

from models.lora import WEIGHTS, AdapterError
from models.step.model import StepModel
from models.step.paged import PagedModel
from models.step.probe import ProbeSpan
from tests.models.step.adapting import ALL, ATTENTION, adapter_folder, adapters_of, merged
from tests.models.step.driving import Driver, sequence
from tests.models.step.tiny import greedy, prompts, served, tiny

NEW = 8
IDS = [7, 11, 13, 5, 20, 33]


def logits(model: StepModel, adapter: str | None) -> Tensor:
    assert isinstance(model, PagedModel)
    size = model.capacity.block_size
    blocks = tuple(range(-(-len(IDS) // size)))
    return model.logits(ProbeSpan(0, len(IDS), blocks, adapter), IDS)


@torch.inference_mode()
def eager(model: PreTrainedModel) -> Tensor:
    found: Tensor = model(input_ids=torch.tensor([IDS]), use_cache=False).logits[0]
    return found


@pytest.mark.parametrize(
    ("model_type", "targets", "config", "scale"),
    [
        ("llama", ["q_proj", "v_proj"], {}, 2),
        ("llama", ALL, {"use_rslora": True}, 4),
        ("gemma3_text", ALL, {}, 2),
        ("phi3", ["qkv_proj", "o_proj", "gate_up_proj", "down_proj"], {}, 2),
        ("gpt2", ["c_attn", "c_proj", "c_fc"], {"fan_in_fan_out": True}, 2),
        ("gpt_neox", ["query_key_value", "dense", "dense_h_to_4h", "dense_4h_to_h"], {}, 2),
    ],
)
def test_logits_equal_those_of_merged_weights(
    tmp_path: Path, model_type: str, targets: list[str], config: dict[str, Any], scale: float
) -> None:
    model = tiny(model_type)
    folder = adapter_folder(tmp_path / "a", model, targets, **config)
    expected, plain = eager(merged(model, folder, scale)), eager(model)
    assert (expected - plain).abs().max() > 0.1
    step_model = served(model, adapters=adapters_of(model, folder), kernels="sdpa")
    torch.testing.assert_close(logits(step_model, "a"), expected, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(logits(step_model, None), plain, rtol=1e-4, atol=1e-4)


def test_patterns_give_layers_ranks_and_scales_of_their_own(tmp_path: Path) -> None:
    model = tiny("llama")
    patterns: dict[str, Any] = {
        "rank_pattern": {"q_proj": 2},
        "alpha_pattern": {"q_proj": 4},
        "lora_alpha": 8,
    }
    folder = adapter_folder(tmp_path / "a", model, ["q_proj", "o_proj"], **patterns)
    adapters = adapters_of(model, folder)
    assert adapters[0].about == "a (ranks 2 to 4, 4 layers)"
    expected = eager(merged(model, folder))
    step_model = served(model, adapters=adapters, kernels="sdpa")
    assert step_model.describe()["adapters"] == adapters[0].about
    torch.testing.assert_close(logits(step_model, "a"), expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("wishes", [{}, {"kernels": "sdpa"}])
def test_sequences_of_several_adapters_share_steps(tmp_path: Path, wishes: dict[str, Any]) -> None:
    model = tiny("llama")
    one = adapter_folder(tmp_path / "one", model, ALL)
    other = adapter_folder(tmp_path / "other", model, ATTENTION, seed=1, r=3, lora_alpha=6)
    asked, names = prompts(6), (None, "one", "other", "one", None, "other")
    texts = {None: model, "one": merged(model, one), "other": merged(model, other)}
    expected = [greedy(texts[n], p, NEW) for p, n in zip(asked, names, strict=True)]
    adapters = adapters_of(model, one, other)
    step_model = served(model, adapters=adapters, block_size=16, kv_cache_gib=0.01, **wishes)
    assert step_model.capacity.adapters == ("one", "other")
    driver = Driver(step_model, preempt=0.2)
    together = [sequence(p, adapter=n) for p, n in zip(asked, names, strict=True)]
    assert driver.run(together, NEW) == expected


def test_int8_layers_are_adapted_too(tmp_path: Path) -> None:
    model = tiny("llama", hidden_size=64, intermediate_size=64)
    folder = adapter_folder(tmp_path / "a", model, ALL)
    expected = eager(merged(model, folder))
    adapters = adapters_of(model, folder)
    found = logits(served(model, adapters=adapters, dtype="int8", kernels="sdpa"), "a")
    error = (found - expected).norm() / expected.norm()
    assert error < 0.1


def renamed(key: str) -> Callable[[dict[str, Tensor]], None]:
    return lambda tensors: tensors.update({key: tensors.pop(next(iter(tensors)))})


def cut(tensors: dict[str, Tensor]) -> None:
    key = "base_model.model.model.layers.1.self_attn.q_proj.lora_B.weight"
    tensors[key] = tensors[key][1:].contiguous()


def lost(tensors: dict[str, Tensor]) -> None:
    for which in "AB":
        del tensors[f"base_model.model.model.layers.1.self_attn.q_proj.lora_{which}.weight"]


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (cut, r"its matrices for model.layers.1.self_attn.q_proj are .*'B': \(31, 4\)"),
        (lost, "lacks matrices for model.layers.1.self_attn.q_proj"),
        (dict.clear, "lacks matrices for model.layers.0.self_attn.q_proj"),
        (
            renamed("base_model.model.model.layers.9.self_attn.q_proj.lora_A.weight"),
            "LlamaForCausalLM has no linear layer model.layers.9.self_attn.q_proj",
        ),
        (
            renamed("base_model.model.model.embed_tokens.lora_embedding_A"),
            "embed_tokens.lora_embedding_A is not supported",
        ),
        (
            renamed("base_model.model.lm_head.lora_A.weight"),
            "it adapts the output layer lm_head, which is not supported",
        ),
    ],
)
def test_matrices_that_do_not_fit_are_refused(
    tmp_path: Path, change: Callable[[dict[str, Tensor]], None], reason: str
) -> None:
    model = tiny("llama")
    folder = adapter_folder(tmp_path / "a", model, ["q_proj"])
    tensors = load_file(folder / WEIGHTS)
    change(tensors)
    save_file(tensors, folder / WEIGHTS)
    with pytest.raises(AdapterError, match=f"adapter 'a': .*{reason}"):
        adapters_of(model, folder)


def test_a_model_without_paged_attention_takes_none(tmp_path: Path) -> None:
    model = tiny("bloom", n_head=4)
    folder = adapter_folder(tmp_path / "a", model, ["query_key_value"])
    with pytest.raises(ValueError, match="adapters need paged attention"):
        served(model, adapters=adapters_of(model, folder))


def test_layers_that_see_some_rows_only_are_found_out(tmp_path: Path) -> None:
    """What is added to one row must not go to another."""
    model: Any = tiny("llama")
    inner = model.model.layers[0].mlp.forward
    model.model.layers[0].mlp.forward = lambda x: torch.cat([inner(x[:, :1]), inner(x[:, 1:])], 1)
    folder = adapter_folder(tmp_path / "a", model, ["up_proj"])
    with pytest.raises(ValueError, match="gets other rows than the step's"):
        served(model, adapters=adapters_of(model, folder), kernels="sdpa")
