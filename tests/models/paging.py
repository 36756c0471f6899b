"""A token engine over a paged model, and what it answers."""

from __future__ import annotations

import random
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

from models.metrics import LlmMetrics
from models.request import SamplingParams
from models.schedule.admission import Admission
from models.step.paged import PagedModel
from models.step_loop import StepLoop
from models.stepper import Stepper
from models.token_engine import TokenEngine
from models.tokens import TokenRequest
from tests.models.asking import collect


@asynccontextmanager
async def engine_over(
    paged: PagedModel, *, ahead: bool, step_tokens: int = 8
) -> AsyncGenerator[TokenEngine, None]:
    paged.launch_ahead = ahead
    metrics = LlmMetrics("paged")
    stepper = Stepper(paged, step_tokens=step_tokens, metrics=metrics)
    admission = Admission(paged.capacity.slots, 1000, 100_000)
    yield TokenEngine(stepper, StepLoop(stepper), admission, metrics)
    assert stepper.failure is None
    stepper.close()


async def answers(engine: TokenEngine, prompt: list[int], **wishes: Any) -> list[int]:
    request = TokenRequest(
        f"r{random.getrandbits(64)}", tuple(prompt), SamplingParams(**wishes), frozenset()
    )
    return (await collect(engine, request)).tokens[0]
