from __future__ import annotations

from collections import abc
from typing import Any, TypeVar

import pytest
import torch
from torch import Tensor
from transformers import PreTrainedModel

from models.request import SamplingParams
from models.schedule.sequence import Chunk
from models.step import varlen
from models.step.capture import Replay
from models.step.graphs import bucket_sizes
from models.step.paged import PagedModel
from tests.models.step.driving import Driver, sequence
from tests.models.step.replaying import BLOCK, Replays, graphed
from tests.models.step.tiny import greedy, prompts, tiny

T = TypeVar("T")
NEW = 12
ARCHITECTURES: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("llama", {}),
    "qwen3": ("qwen3", {"head_dim": 16}),
    "qwen3_moe": (
        "qwen3_moe",
        {
            "head_dim": 16,
            "num_experts": 4,
            "num_experts_per_tok": 2,
            "moe_intermediate_size": 16,
        },
    ),
    "mistral with a short window": ("mistral", {"sliding_window": 7}),
    "gemma3 with windows": (
        "gemma3_text",
        {
            "head_dim": 16,
            "sliding_window": 6,
            "layer_types": ["sliding_attention", "full_attention"],
        },
    ),
}


@pytest.fixture(autouse=True)
def _single_precision(monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel of these tests takes it, and what is compared is exact."""
    monkeypatch.setattr(varlen, "PRECISIONS", (torch.float32,))


@pytest.fixture(scope="module", params=list(ARCHITECTURES.values()), ids=list(ARCHITECTURES))
def model(request: pytest.FixtureRequest) -> PreTrainedModel:
    model_type, changes = request.param
    return tiny(model_type, **changes)


@pytest.fixture(scope="module")
def llama() -> PreTrainedModel:
    return tiny("llama")


def test_random_steps_equal_full_recomputation(model: PreTrainedModel) -> None:
    """Decode steps of all sizes, mixed with prefills, growing tables, freed and reused blocks."""
    paged = graphed(model)
    assert paged.describe()["graphs"].startswith("1, 2, 4, 6 sequences: ")
    asked = prompts(6)
    driver = Driver(paged, preempt=0.1, from_slot=0.5)
    assert driver.run([sequence(p) for p in asked], NEW) == [greedy(model, p, NEW) for p in asked]


def test_seeded_texts_are_those_of_steps_without_graphs(llama: PreTrainedModel) -> None:
    wishes = [
        SamplingParams(temperature=1.0),
        SamplingParams(temperature=0.7, top_p=0.8, repetition_penalty=1.3),
        SamplingParams(temperature=1.2, top_k=5, presence_penalty=0.5),
        SamplingParams(temperature=0.9, logit_bias={5: 3.0}),
        SamplingParams(temperature=0),
    ]
    runs = [
        Driver(graphed(llama, graphs=graphs), most=most, from_slot=0.7).run(
            [sequence(p, w, seed=9) for p, w in zip(prompts(5), wishes, strict=True)], NEW
        )
        for graphs, most in ((False, 7), (True, 7), (True, 50))
    ]
    assert runs[0] == runs[1] == runs[2]


class Counted(Replays):
    """Counts what is replayed."""

    replays = 0

    def record(self, run: abc.Callable[[], T]) -> tuple[T, Replay]:
        result, replay = super().record(run)

        def counted() -> None:
            self.replays += 1
            replay()

        return result, counted


def test_steps_that_only_decode_are_replayed_and_no_others(llama: PreTrainedModel) -> None:
    paged, counted = graphed(llama, graphs=False), Counted()
    paged.record_decoding(counted)
    counted.replays = 0
    driver = Driver(paged, most=100)
    sequences = [sequence(p) for p in prompts(3, 5, 20)]
    driver.step(sequences)
    assert counted.replays == 0
    driver.step(sequences)
    driver.step(sequences[:1])
    assert counted.replays == 2
    driver.step([sequences[0], sequence(prompts(1, 5, 6)[0])])
    assert counted.replays == 2


def caches(paged: PagedModel, model: PreTrainedModel) -> list[Tensor]:
    return [vars(m)["paged_cache"].storage for m in model.modules() if "paged_cache" in vars(m)]


def test_padding_writes_to_its_own_block_only(llama: PreTrainedModel) -> None:
    paged = graphed(llama, slots=8, blocks=20)
    driver = Driver(paged, most=100)
    sequences = [sequence(p) for p in prompts(5, 5, 9)]
    driver.step(sequences)
    before = [storage.clone() for storage in caches(paged, llama)]
    driver.step(sequences)  # five of eight
    written = {(s.blocks[(s.length - 2) // BLOCK], (s.length - 2) % BLOCK) for s in sequences}
    for old, new in zip(before, caches(paged, llama), strict=True):
        changed = (old != new).flatten(2).any(-1).nonzero().tolist()
        assert {tuple(place) for place in changed if place[0] < 20} == written


def test_a_slot_that_changes_hands_is_read_through_its_new_blocks(llama: PreTrainedModel) -> None:
    """The new sequence has fewer blocks, the same number, or begins with the same ones."""
    paged = graphed(llama, slots=2)
    for blocks, length in (((3, 4, 5), 9), ((6, 7), 7), ((8, 9), 6), ((8, 10, 11), 9)):
        prompt = prompts(1, length, length + 1)[0]
        first = sequence(prompt)
        chunk = Chunk(first, 0, length, True, tuple(prompt), False, 0, blocks, tuple(prompt))
        (token,) = paged.launch([chunk]).tokens()
        chunk = Chunk(first, length, 1, True, (token,), False, 0, blocks, None)
        assert [token, *paged.launch([chunk]).tokens()] == greedy(llama, prompt, 2)


def test_after_a_reset_blocks_are_sent_anew(llama: PreTrainedModel) -> None:
    paged = graphed(llama)
    asked = prompts(3, 5, 20)
    Driver(paged, most=100).run([sequence(p) for p in asked], 3)
    paged.reset()
    again = Driver(paged, most=100, seed=5).run([sequence(p) for p in asked], NEW)
    assert again == [greedy(llama, p, NEW) for p in asked]


# What waits for the device, and what attends otherwise than by the kernel.
UNRECORDED: dict[str, tuple[str, dict[str, Any], str]] = {
    "rotary frequencies that follow the longest sequence": (
        "llama",
        {"rope_parameters": {"rope_type": "dynamic", "factor": 2.0, "rope_theta": 1e4}},
        "_local_scalar_dense",
    ),
    "experts in a loop": (
        "qwen3_moe",
        {
            "head_dim": 16,
            "num_experts": 4,
            "num_experts_per_tok": 2,
            "moe_intermediate_size": 16,
            "experts_implementation": "eager",
        },
        "nonzero",
    ),
    "soft caps": (
        "gemma2",
        {"head_dim": 16, "sliding_window": 5, "attn_logit_softcapping": 2.0},
        "gathering",
    ),
}


@pytest.mark.parametrize(
    ("model_type", "changes", "reason"), list(UNRECORDED.values()), ids=list(UNRECORDED)
)
def test_what_cannot_be_recorded_is_launched_step_by_step(
    model_type: str, changes: dict[str, Any], reason: str
) -> None:
    model = tiny(model_type, **changes)
    paged = graphed(model)
    fact = paged.describe()["graphs"]
    assert fact.startswith("none (")
    assert reason in fact
    asked = prompts(3)
    answers = Driver(paged).run([sequence(p) for p in asked], NEW)
    assert answers == [greedy(model, p, NEW) for p in asked]


class Failing(Replays):
    """Records so many graphs, then fails."""

    def __init__(self, good: int, error: Exception) -> None:
        self._good = good
        self._error = error

    def record(self, run: abc.Callable[[], T]) -> tuple[T, Replay]:
        self._good -= 1
        if self._good < 0:
            raise self._error
        return super().record(run)


def test_what_was_recorded_before_a_failure_is_used(llama: PreTrainedModel) -> None:
    paged = graphed(llama, graphs=False)
    paged.record_decoding(Failing(2, RuntimeError("no more")))
    fact = paged.describe()["graphs"]
    assert fact.startswith("4, 6 sequences: ")
    assert fact.endswith("(2 sequences: RuntimeError: no more)")
    asked = prompts(6)
    answers = Driver(paged).run([sequence(p) for p in asked], NEW)
    assert answers == [greedy(llama, p, NEW) for p in asked]


def test_counts_of_sequences_reach_all_slots() -> None:
    assert bucket_sizes(1) == [1]
    assert bucket_sizes(2) == [1, 2]
    assert bucket_sizes(6) == [1, 2, 4, 6]
    assert bucket_sizes(32) == [1, 2, 4, 8, 16, 32]
