"""Tiny checkpoints of every format against those of the numbers that they stand for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModel, AutoModelForCausalLM, PreTrainedModel

from models.step.checkpoint import load_checkpoint
from models.step.grouped import GroupedLinear, ungroup
from models.step.load import load_step_model
from models.step.weights import parameters_of
from tests.models.step.driving import Driver, sequence
from tests.models.step.native.stacking import FITTING
from tests.models.step.quantised.formats import BY_32, FORMATS, mxfp4_experts
from tests.models.step.quantised.writing import NAME, Written, tell, write_checkpoints
from tests.models.step.tiny import greedy, prompts, tiny, wished

CPU = torch.device("cpu")
LATENT: dict[str, Any] = {
    "n_routed_experts": 4,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 32,
    "n_group": 2,
    "topk_group": 1,
    "first_k_dense_replace": 1,
    "num_key_value_heads": 4,
    "kv_lora_rank": 16,
    "q_lora_rank": 16,
    "qk_rope_head_dim": 16,
    "qk_nope_head_dim": 16,
    "v_head_dim": 16,
}
EVERY = pytest.mark.parametrize("written", FORMATS.values(), ids=FORMATS)


def loaded(folder: Path, dtype: torch.dtype = torch.float32) -> PreTrainedModel:
    return load_checkpoint(AutoModelForCausalLM, folder, CPU, dtype)


def logits(model: PreTrainedModel) -> torch.Tensor:
    with torch.inference_mode():
        found: torch.Tensor = model(input_ids=torch.tensor([[5, 7, 3, 9]])).logits
    return found


def assert_same(folders: tuple[Path, Path], dtype: torch.dtype = torch.float32) -> None:
    quantised, plain = (loaded(folder, dtype) for folder in folders)
    theirs = plain.state_dict()
    for name, weight in quantised.state_dict().items():
        assert torch.equal(weight, theirs[name]), name
    assert torch.equal(logits(quantised), logits(plain))


@EVERY
def test_logits_are_those_of_the_numbers_that_the_codes_stand_for(
    written: Written, tmp_path: Path
) -> None:
    folders = write_checkpoints(tmp_path, tiny("llama"), written)
    assert_same(folders)
    assert_same(folders, torch.bfloat16)


@EVERY
def test_each_is_served_by_native_kernels(written: Written, tmp_path: Path) -> None:
    quantised, plain = write_checkpoints(tmp_path, tiny("llama", **FITTING), written)
    wishes = wished(device="cpu", dtype="float32", kernels="native", slots=3, kv_cache_gib=0.01)
    step_model = load_step_model(quantised, wishes)
    assert step_model.describe()["weights"].startswith("LlamaForCausalLM (from ")
    asked = prompts(3)
    answers = Driver(step_model).run([sequence(p) for p in asked], 6)
    whole = loaded(plain)
    assert answers == [greedy(whole, prompt, 6) for prompt in asked]


WIDE: dict[str, Any] = {**FITTING, "intermediate_size": 96}


@pytest.mark.parametrize("name", ["gptq by 32", "awq by 32", "w4a16 by 32"])
def test_native_kernels_multiply_by_the_codes(name: str, tmp_path: Path) -> None:
    quantised, plain = write_checkpoints(tmp_path, tiny("llama", **WIDE), BY_32[name])
    wishes = wished(device="cpu", dtype="float32", kernels="native", slots=3, kv_cache_gib=0.01)
    step_model = load_step_model(quantised, wishes)
    facts = step_model.describe()
    assert facts["weights"].endswith("with codes of 4 bits as they were stored")
    assert "codes" not in facts["kernels"]
    asked = prompts(3)
    answers = Driver(step_model).run([sequence(p) for p in asked], 6)
    whole = loaded(plain)
    assert answers == [greedy(whole, prompt, 6) for prompt in asked]


def test_whole_weights_are_multiplied_where_the_kernels_know_no_such_codes(tmp_path: Path) -> None:
    """Groups of 16 share less than they can tell apart."""
    quantised, _ = write_checkpoints(tmp_path, tiny("llama", **FITTING), FORMATS["gptq"])
    facts = load_step_model(quantised, wished(device="cpu", dtype="float32")).describe()
    assert facts["kernels"].startswith("paged, native (native")
    assert "share scales by 16" in facts["kernels"]


@pytest.mark.parametrize(
    ("name", "stay"),
    [
        *(("gptq", True), ("awq", True), ("w4a16 asymmetric", True), ("gptq 2", True)),
        *(("gptq by activations", False), ("gptq 8", False), ("nf4", False), ("fp8 blocks", False)),
    ],
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_weights_of_4_bits_may_stay_what_they_are(
    name: str, stay: bool, dtype: torch.dtype, tmp_path: Path
) -> None:
    """In layers that compute the same, and of which whole ones can be made later."""
    quantised, plain = write_checkpoints(tmp_path, tiny("llama"), FORMATS[name])
    model = load_checkpoint(AutoModelForCausalLM, quantised, CPU, dtype, keep=True)
    layers = [module for module in model.modules() if isinstance(module, GroupedLinear)]
    assert len(layers) == (14 if stay else 0)
    whole = loaded(plain, dtype)
    assert torch.equal(logits(model), logits(whole))
    assert parameters_of(model) == parameters_of(whole)
    assert ungroup(model) == stay
    assert {name: w.tolist() for name, w in model.state_dict().items()} == {
        name: w.tolist() for name, w in whole.state_dict().items()
    }


def test_experts_of_4_bits_become_whole_where_they_are_held_together(tmp_path: Path) -> None:
    quantised, plain = write_checkpoints(tmp_path, tiny("mixtral"), FORMATS["gptq"])
    model = load_checkpoint(AutoModelForCausalLM, quantised, CPU, torch.float32, keep=True)
    grouped = {n for n, module in model.named_modules() if isinstance(module, GroupedLinear)}
    assert {name.rpartition(".")[2] for name in grouped} == {"q_proj", "k_proj", "v_proj", "o_proj"}
    assert torch.equal(logits(model), logits(loaded(plain)))


def test_all_are_whole_where_transformers_makes_something_else_of_one(tmp_path: Path) -> None:
    """It widens the layer that picks keys in DeepSeek 3.2 to float32."""
    model = tiny("deepseek_v32", **LATENT, index_head_dim=32)
    quantised, plain = write_checkpoints(tmp_path, model, FORMATS["gptq"])
    found = load_checkpoint(AutoModelForCausalLM, quantised, CPU, torch.float16, keep=True)
    assert not [module for module in found.modules() if isinstance(module, GroupedLinear)]
    whole = loaded(plain, torch.float16).state_dict()
    assert all(torch.equal(weight, whole[name]) for name, weight in found.state_dict().items())


@pytest.mark.parametrize("name", ["fp8 blocks", "w4a16 asymmetric", "gptq", "awq", "nf4"])
@pytest.mark.parametrize("model_type", ["mixtral", "qwen3_moe", "deepseek_v3"])
def test_experts_too(name: str, model_type: str, tmp_path: Path) -> None:
    sizes: dict[str, Any] = {"moe_intermediate_size": 32, "num_experts_per_tok": 2}
    sizes |= {"num_experts": 4}
    if model_type == "deepseek_v3":
        sizes |= LATENT
    assert_same(write_checkpoints(tmp_path, tiny(model_type, **sizes), FORMATS[name]))


def test_the_experts_of_gpt_oss(tmp_path: Path) -> None:
    written = Written({"quant_method": "mxfp4"}, mxfp4_experts, "_proj", ())
    model = tiny("gpt_oss", intermediate_size=64, num_local_experts=4)
    folders = write_checkpoints(tmp_path, model, written)
    assert_same(folders)
    assert_same(folders, torch.bfloat16)


def test_a_model_that_embeds(tmp_path: Path) -> None:
    quantised, plain = write_checkpoints(tmp_path, tiny("llama"), FORMATS["fp8 blocks"])
    ours, theirs = (
        load_checkpoint(AutoModel, folder, CPU, torch.float32) for folder in (quantised, plain)
    )
    ids = torch.tensor([[5, 7, 3]])
    assert torch.equal(ours(ids).last_hidden_state, theirs(ids).last_hidden_state)


def test_one_in_several_files(tmp_path: Path) -> None:
    quantised, plain = write_checkpoints(tmp_path, tiny("llama"), FORMATS["gptq"])
    tensors = load_file(quantised / NAME)
    (quantised / NAME).unlink()
    for part in range(3):
        names = sorted(tensors)[part::3]
        save_file({name: tensors[name] for name in names}, quantised / f"gptq-{part}.safetensors")
    assert_same((quantised, plain))


@pytest.mark.parametrize(
    ("name", "lost"),
    [
        ("fp8 blocks", "q_proj.weight_scale_inv"),
        ("w4a16 asymmetric", "q_proj.weight_scale"),
        ("w4a16 asymmetric", "q_proj.weight_zero_point"),
        ("int-quantized", "q_proj.weight_scale"),
        ("gptq", "q_proj.qzeros"),
        ("awq", "q_proj.scales"),
        ("nf4", "q_proj.weight.absmax"),
        ("llm.int8", "q_proj.SCB"),
        ("torchao", "q_proj._weight_scale"),
        ("torchao zeros", "q_proj._weight_zero_point"),
    ],
)
def test_scales_that_are_missing_are_named(name: str, lost: str, tmp_path: Path) -> None:
    quantised, _ = write_checkpoints(tmp_path, tiny("llama"), FORMATS[name])
    tensors = load_file(quantised / NAME)
    lost = f"model.layers.1.self_attn.{lost}"
    save_file({name: t for name, t in tensors.items() if name != lost}, quantised / NAME)
    with pytest.raises(ValueError, match=f"lacks {lost}"):
        loaded(quantised)


def doubled(tensor: torch.Tensor) -> torch.Tensor:
    return torch.cat([tensor, tensor])


def first(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.flatten()[:1].view([1] * tensor.ndim)


def halved(tensor: torch.Tensor) -> torch.Tensor:
    return tensor[..., : tensor.shape[-1] // 2].contiguous()


@pytest.mark.parametrize(
    ("name", "wrong", "change"),
    [
        ("w4a16", "weight_packed", halved),
        ("fp8 blocks", "weight_scale_inv", doubled),
        ("fp8 blocks", "weight_scale_inv", first),
        ("float-quantized", "weight_scale", lambda scales: scales[::2].contiguous()),
        ("nvfp4", "weight_scale", halved),
        ("nvfp4", "weight_global_scale", None),
        ("gptq asymmetric", "scales", halved),
        ("gptq 8", "scales", doubled),
        ("gptq by activations", "g_idx", first),
        ("awq", "qzeros", torch.Tensor.long),
        ("nf4", "weight.absmax", doubled),
        ("nf4 nested", "weight.nested_absmax", None),
        ("llm.int8", "SCB", first),
    ],
)
@pytest.mark.parametrize("keep", [True, False])
def test_tensors_that_contradict_each_other_are_named(
    name: str, wrong: str, change: Any, keep: bool, tmp_path: Path
) -> None:
    quantised, _ = write_checkpoints(tmp_path, tiny("llama"), FORMATS[name])
    tensors = load_file(quantised / NAME)
    changed = f"model.layers.1.self_attn.q_proj.{wrong}"
    tensor = tensors.pop(changed)
    if change is not None:
        tensors[changed] = change(tensor)
    save_file(tensors, quantised / NAME)
    with pytest.raises(ValueError, match=r"layers\.1\.self_attn\.q_proj\..* contradict each other"):
        load_checkpoint(AutoModelForCausalLM, quantised, CPU, torch.float32, keep=keep)


def test_scales_without_codes_are_no_weights_of_ours(tmp_path: Path) -> None:
    """AWQ divides what some activations give by scales of their own, which nothing here does."""
    quantised, _ = write_checkpoints(tmp_path, tiny("llama"), FORMATS["awq"])
    tensors = load_file(quantised / NAME)
    save_file({**tensors, "model.layers.0.mlp.act.scales": torch.ones(48)}, quantised / NAME)
    with pytest.raises(ValueError, match=r"no codes of AWQ, 4 bits beside .*mlp\.act\.scales"):
        loaded(quantised)


def test_codes_that_are_missing_are_missing_weights(tmp_path: Path) -> None:
    quantised, _ = write_checkpoints(tmp_path, tiny("llama"), FORMATS["gptq"])
    tensors = load_file(quantised / NAME)
    kept = {name: tensor for name, tensor in tensors.items() if "layers.1.mlp.up_proj" not in name}
    save_file(kept, quantised / NAME)
    with pytest.raises(ValueError, match=r"lacks weights of LlamaForCausalLM: .*up_proj\.weight"):
        loaded(quantised)


def test_what_is_no_linear_layer_is_refused(tmp_path: Path) -> None:
    model = tiny("gpt2")
    model.save_pretrained(tmp_path)
    tell(tmp_path, FORMATS["gptq"].told)
    with pytest.raises(ValueError, match="gpt2 is not supported with weights in GPTQ, 4 bits"):
        loaded(tmp_path)
