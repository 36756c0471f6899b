from __future__ import annotations

import pytest
import torch

from models.request import SamplingParams
from models.schedule.sequence import Chunk
from models.step.plain import PlainStepModel
from tests.models.step.driving import Driver, sequence


class Counting:
    """The next token is the last one plus one. The state is how many tokens were read."""

    vocab_size = 10
    max_context = 32

    def prefill(self, tokens: list[int]) -> tuple[int, list[float]]:
        return len(tokens), self._after(tokens[-1])

    def decode(self, state: int, token: int) -> tuple[int, list[float]]:
        return state + 1, self._after(token)

    def _after(self, token: int) -> list[float]:
        return [float(i == (token + 1) % 10) for i in range(10)]


def test_counts_for_many_sequences_at_once() -> None:
    model = PlainStepModel(Counting(), slots=4)
    asked = [[1], [7, 3], [2, 2, 9], [5] * 8]
    answers = Driver(model, preempt=0.3, from_slot=0.5).run([sequence(p) for p in asked], 4)
    assert answers == [[(p[-1] + i) % 10 for i in range(1, 5)] for p in asked]


def test_one_block_is_a_whole_sequence() -> None:
    capacity = PlainStepModel(Counting(), slots=4, max_context=20).capacity
    assert (capacity.blocks, capacity.block_size, capacity.max_context) == (4, 20, 20)
    assert not capacity.prefix_cache


def test_the_prompt_is_read_once_and_whole() -> None:
    read: list[list[int]] = []

    class Recording(Counting):
        def prefill(self, tokens: list[int]) -> tuple[int, list[float]]:
            read.append(tokens)
            return super().prefill(tokens)

    prompt = list(range(9))
    Driver(PlainStepModel(Recording(), slots=1), most=2).run([sequence(prompt)], 3)
    assert read == [prompt]


def test_release_drops_the_state() -> None:
    model = PlainStepModel(Counting(), slots=2)
    first = sequence([4])
    chunk = Chunk(first, 0, 1, True, (4,), False, 0, (0,), (4,))
    assert model.launch([chunk]).tokens() == [5]
    model.release(0)
    model.release(0)
    assert model.launch([chunk]).tokens() == [5]


def test_reset_forgets_all_sequences() -> None:
    model = PlainStepModel(Counting(), slots=2)
    Driver(model).step([sequence([4]), sequence([6])])
    model.reset()
    chunk = Chunk(sequence([3]), 0, 1, True, (3,), False, 0, (0,), (3,))
    assert model.launch([chunk]).tokens() == [4]


def test_sampling_works_on_logits_of_any_kind() -> None:
    class Halves(Counting):
        def _after(self, token: int) -> torch.Tensor:  # type: ignore[override]
            return torch.tensor(super()._after(token), dtype=torch.bfloat16) * 100

    wish = SamplingParams(temperature=1.0, top_p=0.9, presence_penalty=0.1)
    driver = Driver(PlainStepModel(Halves(), slots=1))
    assert driver.run([sequence([1, 2], wish)], 4) == [[3, 4, 5, 6]]


def test_an_error_of_the_model_is_its_own() -> None:
    class Broken(Counting):
        def prefill(self, tokens: list[int]) -> tuple[int, list[float]]:
            raise RuntimeError("no weights today")

    with pytest.raises(RuntimeError, match="no weights today"):
        Driver(PlainStepModel(Broken(), slots=1)).run([sequence([1])], 1)


@pytest.mark.parametrize("logits", [[0.0] * 3, [float("nan")] * 5, [float("-inf")] * 5])
def test_logits_that_no_token_can_be_drawn_from_are_refused(logits: list[float]) -> None:
    class Broken:
        vocab_size = 5
        max_context = 8

        def prefill(self, tokens: list[int]) -> tuple[None, list[float]]:
            return None, logits

        def decode(self, state: None, token: int) -> tuple[None, list[float]]:
            return None, logits

    model = PlainStepModel(Broken(), slots=1)
    with pytest.raises(ValueError, match="logits"):
        Driver(model).run([sequence([1, 2])], 1)
