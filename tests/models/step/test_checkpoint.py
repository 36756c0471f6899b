from __future__ import annotations

from pathlib import Path

import pytest
import torch
from transformers import AutoModel, AutoModelForCausalLM

from models.step.checkpoint import load_checkpoint
from models.step.quantised.loading import Auto
from models.step.widen import stored_half
from tests.models.step.tiny import tiny

CPU = torch.device("cpu")
AUTOS = pytest.mark.parametrize("auto", [AutoModel, AutoModelForCausalLM])


@AUTOS
def test_the_weights_are_the_folders_in_the_wished_precision(auto: Auto, tmp_path: Path) -> None:
    saved = tiny("llama")
    saved.save_pretrained(tmp_path)
    model = load_checkpoint(auto, tmp_path, CPU, torch.bfloat16)
    assert not model.training
    assert torch.equal(next(model.parameters()), next(saved.parameters()).bfloat16())


@AUTOS
def test_code_that_comes_with_weights_is_not_run(auto: Auto, tmp_path: Path) -> None:
    config = '{"model_type": "own", "auto_map": {"AutoConfig": "own.Config"}}'
    (tmp_path / "config.json").write_text(config)
    with pytest.raises(ValueError, match="brings code of its own for own, which is not run"):
        load_checkpoint(auto, tmp_path, CPU, torch.float32)


@AUTOS
def test_weights_that_are_missing_are_named(auto: Auto, tmp_path: Path) -> None:
    model = tiny("llama")
    weights = {name: w for name, w in model.state_dict().items() if "q_proj" not in name}
    model.save_pretrained(tmp_path, state_dict=weights)
    with pytest.raises(ValueError, match=r"lacks weights of Llama.*layers\.0\.self_attn\.q_proj"):
        load_checkpoint(auto, tmp_path, CPU, torch.float32)


@pytest.mark.parametrize("left", [0, 4, 100, -1])
def test_a_file_that_was_cut_off_is_named(left: int, tmp_path: Path) -> None:
    tiny("llama").save_pretrained(tmp_path)
    weights = tmp_path / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:left])
    with pytest.raises(ValueError, match=r"model\.safetensors is no file .* or not whole"):
        load_checkpoint(AutoModelForCausalLM, tmp_path, CPU, torch.float32)
    with pytest.raises(ValueError, match=r"model\.safetensors is no file .* or not whole"):
        stored_half(tmp_path)


@AUTOS
@pytest.mark.parametrize("dtype", [torch.float8_e4m3fn, torch.int8])
def test_codes_that_nothing_is_told_of_are_no_weights(
    auto: Auto, dtype: torch.dtype, tmp_path: Path
) -> None:
    model = tiny("llama")
    name = "model.layers.1.self_attn.q_proj.weight"
    weights = model.state_dict()
    model.save_pretrained(tmp_path, state_dict={**weights, name: weights[name].to(dtype)})
    with pytest.raises(ValueError, match=rf"{name} is of .*8.*, but .* no quantization_config"):
        load_checkpoint(auto, tmp_path, CPU, torch.float32)


def test_a_pooler_may_be_missing(tmp_path: Path) -> None:
    model = tiny("bert")
    model.save_pretrained(tmp_path)
    assert (
        "pooler.dense.weight"
        in load_checkpoint(AutoModel, tmp_path, CPU, torch.float32).state_dict()
    )


@AUTOS
def test_an_encoder_decoder_is_refused(auto: Auto, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"model_type": "t5", "is_encoder_decoder": true}')
    with pytest.raises(ValueError, match="t5 is an encoder-decoder"):
        load_checkpoint(auto, tmp_path, CPU, torch.float32)
