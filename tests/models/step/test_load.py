from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from configs.settings import EngineSettings, ModelSettings
from models.build import ServedSteps, build_model
from models.metrics import LlmMetrics
from models.step import host
from models.step.load import load_step_model
from models.step.paged import PagedModel
from models.step.place import precision_of
from models.text.byte_tokenizer import byte_tokenizer
from tests.models.step.driving import Driver, sequence
from tests.models.step.tiny import greedy, prompts, tiny, wished


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("llama")
    tiny("llama").save_pretrained(path)
    return path


@pytest.fixture(autouse=True)
def _threads() -> Iterator[None]:
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


def test_a_folder_is_served_as_its_model_computes(folder: Path) -> None:
    step_model = load_step_model(
        folder, wished(device="cpu", dtype="float32", block_size=4, slots=3, kv_cache_gib=0.001)
    )
    assert isinstance(step_model, PagedModel)
    assert not step_model.launch_ahead
    asked = prompts(3)
    answers = Driver(step_model).run([sequence(p) for p in asked], 6)
    assert answers == [greedy(tiny("llama"), prompt, 6) for prompt in asked]


def test_a_model_among_others_takes_its_part_and_tells(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tiny("llama").save_pretrained(tmp_path)
    byte_tokenizer().save(str(tmp_path / "tokenizer.json"))
    (tmp_path / "meminfo").write_text("MemAvailable: 600 kB\n")
    monkeypatch.setattr(host, "MEMINFO", tmp_path / "meminfo")
    engine = EngineSettings(device="cpu", dtype="float32")
    settings = ModelSettings(name="m", source=str(tmp_path), engine=engine)
    built = build_model(settings, LlmMetrics("m"), sharing=2)
    assert isinstance(built, ServedSteps)
    fact = built.stepper.model.describe()["kv_cache"]
    built.stepper.close()
    assert fact.startswith("25 blocks of 16: 400 tokens")  # 100 KiB, 256 bytes a token
    assert fact.endswith("(a third of 0.00 GiB free, divided among 2 models)")


def test_every_choice_is_told(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "stepserve")
    step_model = load_step_model(
        folder, wished(device="cpu", kernels="sdpa", threads=1, max_context=32)
    )
    facts = step_model.describe()
    assert facts["device"] == "cpu"
    assert facts["threads"] == "1"
    precision = precision_of("auto", torch.device("cpu"))
    dtype = str(precision.dtype).removeprefix("torch.")
    assert facts["dtype"] == str(precision)
    assert facts["dtype"].startswith(f"{dtype} (auto")
    assert facts["context"] == "32 tokens"
    assert facts["weights"].startswith("LlamaForCausalLM, 0 M parameters")
    assert facts["kernels"] == "paged, sdpa"
    assert facts["kv_cache"].startswith(f"64 blocks of 16: 1024 tokens in {dtype}, 0.00 GiB (all")
    for fact in facts.values():
        assert fact in caplog.text
    assert torch.get_num_threads() == 1


def test_a_dtype_may_be_chosen(folder: Path) -> None:
    facts = load_step_model(folder, wished(device="cpu", dtype="bfloat16")).describe()
    assert facts["dtype"] == "bfloat16"
    assert facts["kernels"].startswith("paged")


def test_weights_in_int8(folder: Path) -> None:
    facts = load_step_model(
        folder, wished(device="cpu", dtype="int8", kv_cache_dtype="float16")
    ).describe()
    assert facts["dtype"] == "int8 weights, float32"
    assert "linear layers with" in facts["weights"]
    assert "tokens in float16" in facts["kv_cache"]


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")
def test_a_missing_device_is_an_error(folder: Path) -> None:
    with pytest.raises(ValueError, match="no CUDA device"):
        load_step_model(folder, wished(device="cuda"))


def test_an_architecture_with_attention_of_its_own_loads_too(tmp_path: Path) -> None:
    model = tiny("falcon")
    model.save_pretrained(tmp_path)
    step_model = load_step_model(tmp_path, wished(device="cpu", slots=2))
    asked = prompts(2)
    answers = Driver(step_model).run([sequence(p) for p in asked], 4)
    assert answers == [greedy(model, prompt, 4) for prompt in asked]


@pytest.mark.slow
def test_the_default_model_says_what_generate_says(smollm2: Path) -> None:
    step_model = load_step_model(
        smollm2, wished(device="cpu", dtype="float32", slots=3, kv_cache_gib=0.2)
    )
    tokenizer = AutoTokenizer.from_pretrained(smollm2)
    model = AutoModelForCausalLM.from_pretrained(smollm2, dtype=torch.float32)
    texts = ["The capital of France is", "def fibonacci(n):", "Once upon a time, " * 20]
    asked = [tokenizer(text).input_ids for text in texts]
    answers = Driver(step_model, most=64, preempt=0.05).run([sequence(p) for p in asked], 24)
    for prompt, answer in zip(asked, answers, strict=True):
        ids = model.generate(
            torch.tensor([prompt]), max_new_tokens=24, do_sample=False, eos_token_id=-1
        )
        assert answer == ids[0, len(prompt) :].tolist()
