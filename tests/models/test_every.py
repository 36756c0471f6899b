"""Each causal architecture of transformers, from a folder to greedy answers: those of ``generate``.

Sequences of all lengths share steps, in chunks, and are preempted and resumed.
"""

from __future__ import annotations

import re
from collections import abc
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM, GenerationConfig
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

from models.step.load import load_step_model
from models.step.model import StepModel
from models.step.paged import PagedModel
from tests.models.every import VOCAB, tiny_model
from tests.models.step.driving import Driver, sequence
from tests.models.step.tiny import wished

NAMES = re.compile(r"`([^`]+)`")
LENGTHS = (90, 6, 61, 33, 18)
NEW = 12
FLOAT32_ONLY = {"reformer", "xlnet"}
# transformers needs other libraries for these, or cannot itself make, save or run them.
LEFT_OUT = {
    "blt",
    "dots3_note",
    "emu3",
    "gemma3n",
    "gemma4_assistant",
    "gemma4_unified_assistant",
    "musicgen",
    "musicgen_melody",
    "xlm",
    "xlstm",
}
WAYS = {"native kernels": "native", "one sequence at a time": "alone", "all anew": "anew"}


def told() -> dict[str, str]:
    """The way of each architecture that is listed beside what serves it."""
    text = (Path(__file__).parents[2] / "models/step/README.md").read_text(encoding="utf-8")
    rows = [line.split("|") for line in text.splitlines()]
    named = {row[1].strip(): row[2] for row in rows if len(row) > 2}
    return {
        model_type: way for how, way in WAYS.items() for model_type in NAMES.findall(named[how])
    }


@pytest.fixture(autouse=True, scope="module")
def _one_thread() -> abc.Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.mark.parametrize("model_type", sorted(set(MODEL_FOR_CAUSAL_LM_MAPPING_NAMES) - LEFT_OUT))
def test_answers_are_those_of_generate(model_type: str, tmp_path: Path) -> None:
    tiny_model(model_type).save_pretrained(tmp_path)
    step_model = loaded(tmp_path, "float32")
    assert way_of(step_model) == told().get(model_type, "paged")
    asked = prompts()
    # Over their own caches some answer otherwise, in transformers too, once a text is read anew.
    paged = isinstance(step_model, PagedModel)
    driver = Driver(step_model, most=16, preempt=0.1 if paged else 0.0)
    assert driver.run([sequence(p) for p in asked], NEW) == generated(tmp_path, asked)
    if model_type not in FLOAT32_ONLY:
        half = loaded(tmp_path, "bfloat16")
        assert way_of(half) in (way_of(step_model), "paged")
        assert all(Driver(half, most=16).run([sequence(p) for p in asked], 2))


def loaded(folder: Path, dtype: str) -> StepModel:
    return load_step_model(
        folder, wished(device="cpu", dtype=dtype, threads=1, slots=6, kv_cache_gib=1.0)
    )


def way_of(step_model: StepModel) -> str:
    kernels = step_model.describe()["kernels"]
    if kernels.startswith("paged, native"):
        return "native"
    if kernels.startswith("paged"):
        return "paged"
    return "anew" if "all anew for each token" in kernels else "alone"


def prompts() -> list[list[int]]:
    generator = torch.Generator().manual_seed(1)
    return [torch.randint(5, VOCAB - 21, (n,), generator=generator).tolist() for n in LENGTHS]


def generated(folder: Path, asked: list[list[int]]) -> list[list[int]]:
    model: Any = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    # Some force how an answer ends.
    model.generation_config = GenerationConfig()  # type: ignore[no-untyped-call]
    options = {"max_new_tokens": NEW, "do_sample": False, "eos_token_id": -1, "pad_token_id": 0}
    answers = [model.generate(torch.tensor([prompt]), **options)[0] for prompt in asked]
    return [ids[len(p) :].tolist() for ids, p in zip(answers, asked, strict=True)]
