"""A whole engine over a tiny random model that reads and writes bytes, and what it must answer."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from transformers import PreTrainedModel

from models.metrics import LlmMetrics
from models.schedule.admission import Admission
from models.scheduled import Scheduled
from models.step.model import StepModel
from models.step_loop import StepLoop
from models.stepper import Stepper
from models.text.loading import byte_pipeline
from models.token_engine import TokenEngine
from tests.models.step.tiny import served, tiny

BYTES = 261  # tokens of the byte tokenizer


@dataclass(frozen=True)
class Tiny:
    """The engine, and another copy of its model for comparison."""

    engine: Scheduled
    model: PreTrainedModel

    def logprobs(self, token_ids: list[int]) -> torch.Tensor:
        """[tokens, vocabulary]: the log-softmax after each token, by eager attention."""
        return eager_logprobs(self.model, token_ids)


@torch.inference_mode()
def eager_logprobs(model: PreTrainedModel, token_ids: list[int]) -> torch.Tensor:
    model.set_attn_implementation("eager")
    logits: torch.Tensor = model(input_ids=torch.tensor([token_ids]), use_cache=False).logits[0]
    return logits.float().log_softmax(-1)


def byte_model() -> PreTrainedModel:
    return tiny("llama", vocab_size=BYTES)


def engine_over(
    model: StepModel, *, name: str = "tiny", step_tokens: int = 16, running: int | None = None
) -> Scheduled:
    metrics = LlmMetrics(name)
    stepper = Stepper(model, step_tokens=step_tokens, metrics=metrics)
    admission = Admission(running or model.capacity.slots, 1000, 100_000)
    engine = TokenEngine(stepper, StepLoop(stepper), admission, metrics)
    return Scheduled(name, engine, byte_pipeline())


@contextmanager
def tiny_engine(name: str = "tiny", **wishes: Any) -> Iterator[Tiny]:
    with engine_over(served(byte_model(), **wishes), name=name) as engine:
        yield Tiny(engine, byte_model())
        assert engine.engine.stepper.live == 0
        engine.engine.stepper.pool.check()
