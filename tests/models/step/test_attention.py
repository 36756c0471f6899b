from __future__ import annotations

import threading

import pytest
import torch

from models.step.attention import attending, paged_attention
from models.step.trace import Trace
from tests.models.step.driving import Driver, sequence
from tests.models.step.tiny import greedy, prompts, served, tiny


def test_outside_a_step_there_is_no_attention() -> None:
    tensor = torch.zeros(1, 2, 3, 4)
    with pytest.raises(RuntimeError, match="outside"):
        paged_attention(torch.nn.Identity(), tensor, tensor, tensor)


@pytest.mark.parametrize("own", ["attention_mask", "position_bias"])
def test_what_a_model_makes_of_its_own_is_not_ignored(own: str) -> None:
    tensor = torch.zeros(1, 2, 3, 4)
    with attending(Trace(tiny("llama"))), pytest.raises(NotImplementedError, match="of its own"):
        paged_attention(torch.nn.Identity(), tensor, tensor, tensor, **{own: tensor})  # type: ignore[arg-type]


def test_models_on_different_threads_do_not_meet() -> None:
    asked = prompts(4)
    models = [tiny("llama"), tiny("qwen3", head_dim=16)]
    answers: dict[int, list[list[int]]] = {}

    def run(index: int) -> None:
        driver = Driver(served(models[index]), seed=index)
        answers[index] = driver.run([sequence(p) for p in asked], 10)

    threads = [threading.Thread(target=run, args=(i,)) for i in range(len(models))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for index, model in enumerate(models):
        assert answers[index] == [greedy(model, p, 10) for p in asked]
