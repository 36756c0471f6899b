from __future__ import annotations

from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM, PreTrainedModel

from models.step.load import load_step_model
from models.step.widen import computed_in, stored_half, widen, widen_for_good
from tests.models.step.driving import Driver, sequence
from tests.models.step.native.stacking import FITTING
from tests.models.step.tiny import greedy, prompts, tiny, wished

HALF = torch.bfloat16


def logits(model: PreTrainedModel) -> torch.Tensor:
    with torch.inference_mode():
        found: torch.Tensor = model(input_ids=torch.tensor([[5, 7, 3, 9]])).logits
    return found


@pytest.mark.parametrize("model_type", ["llama", "qwen2", "qwen3", "mixtral", "gpt2"])
def test_a_widened_model_computes_as_if_it_were_of_float32(model_type: str) -> None:
    model = tiny(model_type, dtype=HALF)
    whole = tiny(model_type, dtype=HALF).to(torch.float32)  # type: ignore[arg-type]
    assert widen(model)
    assert computed_in(model) == torch.float32
    assert torch.equal(logits(model), logits(whole))
    assert {parameter.dtype for parameter in model.parameters()} == {HALF}
    widen_for_good(model)
    assert model.dtype == computed_in(model) == torch.float32
    assert torch.equal(logits(model), logits(whole))


def test_its_weights_are_as_they_were_after_an_error() -> None:
    model = tiny("llama", dtype=HALF)
    widen(model)
    with pytest.raises(RuntimeError):
        model.model.layers[0].mlp.up_proj(torch.ones(1, 3))
    assert {parameter.dtype for parameter in model.parameters()} == {HALF}


def test_numbers_that_are_rounded_already_cannot_be_widened() -> None:
    """Gemma multiplies embeddings by a root, which its buffer holds in the model's type."""
    model = tiny("llama", dtype=HALF)
    model.register_buffer("root", torch.tensor(3.0, dtype=HALF))
    assert not widen(model)
    assert computed_in(model) == HALF
    assert logits(model).dtype == HALF


def test_what_a_folder_is_stored_in(tmp_path: Path) -> None:
    tiny("llama", dtype=HALF).save_pretrained(tmp_path / "half")
    tiny("llama").save_pretrained(tmp_path / "whole")
    mixed = tiny("llama", dtype=HALF)
    mixed.model.norm.float()
    mixed.save_pretrained(tmp_path / "mixed")
    found = {name: stored_half(tmp_path / name) for name in ("half", "whole", "mixed", "none")}
    assert found == {"half": HALF, "whole": None, "mixed": None, "none": None}


@pytest.mark.parametrize("kernels", ["native", "sdpa"])
@pytest.mark.parametrize("stored", [torch.bfloat16, torch.float16])
def test_a_model_stored_in_half_precision_is_served_in_float32(
    tmp_path: Path, kernels: str, stored: torch.dtype
) -> None:
    tiny("llama", **FITTING, dtype=stored).save_pretrained(tmp_path)
    whole = AutoModelForCausalLM.from_pretrained(tmp_path, dtype=torch.float32)
    wishes = wished(device="cpu", dtype="float32", kernels=kernels, slots=3, kv_cache_gib=0.01)
    step_model = load_step_model(tmp_path, wishes)
    assert "tokens in float32" in step_model.describe()["kv_cache"]
    asked = prompts(3)
    answers = Driver(step_model).run([sequence(p) for p in asked], 6)
    assert answers == [greedy(whole, prompt, 6) for prompt in asked]
