"""Folders on disk to greedy answers, as text through ``Scheduled``, equal transformers' own."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
import torch
from tokenizers import Tokenizer, decoders, models
from transformers import PreTrainedModel

from configs.settings import EngineSettings, ModelSettings
from models.build import build_scheduled
from models.events import Event, Finished, FinishReason, Text
from models.request import GenerateRequest, SamplingParams, TokenPrompt
from models.scheduled import Scheduled
from models.step.paged import PagedModel
from tests.models.step.tiny import VOCAB, prompts, tiny

NEW = 20
EOS = 2
WORDS = [chr(0x4E00 + token_id) for token_id in range(VOCAB)]  # so that a text tells its ids
SLIDING_THEN_FULL = ["sliding_attention", "full_attention"]
PAGED: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("llama", {}),
    "qwen3": ("qwen3", {"head_dim": 16}),
    "gemma3": (
        "gemma3_text",
        {"head_dim": 16, "sliding_window": 6, "layer_types": SLIDING_THEN_FULL},
    ),
    "mistral": ("mistral", {"sliding_window": 7}),
}
CACHED: dict[str, tuple[str, dict[str, Any]]] = {
    "falcon_h1": ("falcon_h1", {"mamba_d_ssm": 32, "mamba_n_heads": 4, "mamba_d_head": 8}),
    "bloom": ("bloom", {"n_layer": 2, "n_head": 4}),
}
BOTH = PAGED | CACHED


@pytest.fixture(autouse=True, scope="module")
def _one_thread() -> None:
    torch.set_num_threads(1)


def saved(model: PreTrainedModel, folder: Path) -> Path:
    """As a folder of Hugging Face's, with a tokenizer of one character a token."""
    model.save_pretrained(folder)
    words = {word: token_id for token_id, word in enumerate(WORDS)}
    tokenizer = Tokenizer(models.WordLevel(words, unk_token=WORDS[0]))
    tokenizer.decoder = decoders.Fuse()
    tokenizer.save(str(folder / "tokenizer.json"))
    return folder


def built(folder: Path) -> Scheduled:
    """With small blocks, and steps that cut prompts to pieces."""
    engine = EngineSettings(
        device="cpu",
        dtype="float32",
        threads=1,
        block_size=4,
        kv_cache_gib=0.001,
        max_running=4,
        step_tokens=16,
    )
    return build_scheduled(ModelSettings(name="tiny", source=str(folder), engine=engine))


async def answer(engine: Scheduled, number: int, prompt: list[int], **wishes: Any) -> list[Event]:
    request = GenerateRequest(
        id=str(number),
        prompt=TokenPrompt(tuple(prompt)),
        sampling=SamplingParams(temperature=0, max_tokens=NEW, **wishes),
    )
    return [event async for event in engine.generate(request)]


def token_ids(events: list[Event]) -> list[int]:
    text = "".join(event.delta for event in events if isinstance(event, Text))
    return [WORDS.index(word) for word in text]


def generated(model: Any, prompt: list[int], **wishes: Any) -> list[int]:
    """What transformers' own ``generate`` appends to the prompt."""
    ids = model.generate(
        torch.tensor([prompt]), max_new_tokens=NEW, do_sample=False, pad_token_id=0, **wishes
    )
    appended: list[int] = ids[0, len(prompt) :].tolist()
    return appended


@pytest.mark.parametrize(("model_type", "changes"), BOTH.values(), ids=BOTH)
async def test_greedy_answers_are_those_of_generate(
    model_type: str, changes: dict[str, Any], tmp_path: Path
) -> None:
    model = tiny(model_type, **changes)
    asked = prompts(8, 10, 50)
    with built(saved(model, tmp_path)) as engine:
        paged = isinstance(engine.engine.stepper.model, PagedModel)
        assert paged is (model_type not in CACHED)
        answers = await asyncio.gather(
            *(answer(engine, i, prompt, ignore_eos=True) for i, prompt in enumerate(asked))
        )
    assert [token_ids(events) for events in answers] == [
        generated(model, prompt, eos_token_id=-1) for prompt in asked
    ]


@pytest.mark.parametrize("model_type", ["llama", "bloom"])
async def test_answers_end_at_the_tokens_at_which_generate_ends_them(
    model_type: str, tmp_path: Path
) -> None:
    """Whatever the generation config names: here a token that each answer comes to."""
    model: Any = tiny(model_type, **BOTH[model_type][1])
    asked = prompts(4, 10, 50)
    free = [generated(model, prompt, eos_token_id=-1) for prompt in asked]
    model.generation_config.eos_token_id = [EOS, *{tokens[5 + i] for i, tokens in enumerate(free)}]
    expected = [generated(model, prompt) for prompt in asked]
    with built(saved(model, tmp_path)) as engine:
        answers = await asyncio.gather(
            *(answer(engine, i, prompt) for i, prompt in enumerate(asked))
        )
    for events, tokens in zip(answers, expected, strict=True):
        assert token_ids(events) == tokens[:-1]
        end = events[-1]
        assert isinstance(end, Finished)
        assert (end.reason, end.stop) == (FinishReason.STOP, None)
        assert end.usage.completion_tokens == len(tokens) < NEW
