"""A token engine over a model that recalls, asked and closed."""

from __future__ import annotations

import random
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, field

from models.constrain.grammars import Grammars
from models.life import Steps
from models.metrics import LlmMetrics
from models.request import ANYBODY, SamplingParams, User
from models.schedule.admission import Admission
from models.schedule.sequence import Scores
from models.step_loop import StepLoop
from models.stepper import Stepper
from models.token_engine import TokenEngine
from models.tokens import Admitted, TokenRequest, Tokens
from tests.models.recall import RecallModel


@asynccontextmanager
async def serving(
    model: RecallModel,
    *,
    step_tokens: int = 16,
    waiting: int = 1000,
    grammars: Grammars | None = None,
    joined: Callable[[Stepper], Steps] = StepLoop,
    stream_interval: int = 1,
) -> AsyncGenerator[TokenEngine, None]:
    metrics = LlmMetrics("recall")
    stepper = Stepper(model, step_tokens=step_tokens, metrics=metrics)
    admission = Admission(model.capacity.slots, waiting, 100_000)
    engine = TokenEngine(stepper, joined(stepper), admission, metrics, grammars, stream_interval)
    yield engine
    assert_nothing_held(engine)
    stepper.close()


def assert_nothing_held(engine: TokenEngine) -> None:
    assert engine.stepper.live == 0
    assert (engine.admission.running, engine.admission.waiting) == (0, 0)
    assert engine.admission.waiting_tokens == 0
    engine.stepper.pool.check()


def ask(
    prompt: list[int],
    count: int | None = 8,
    *,
    seed: int = 0,
    n: int = 1,
    stop_ids: frozenset[int] = frozenset(),
    name: str = "",
    scored: bool = False,
    bad_words: tuple[tuple[int, ...], ...] = (),
    timeout_s: float | None = None,
    priority: int = 0,
    user: User = ANYBODY,
) -> TokenRequest:
    asked = 0 if scored else None
    return TokenRequest(
        name or f"r{random.getrandbits(64)}",
        tuple(prompt),
        SamplingParams(max_tokens=count, seed=seed, logprobs=asked, prompt_logprobs=asked),
        stop_ids,
        n,
        bad_words=bad_words,
        timeout_s=timeout_s,
        priority=priority,
        user=user,
    )


@dataclass
class Answered:
    tokens: dict[int, list[int]] = field(default_factory=dict)
    scores: dict[int, list[Scores]] = field(default_factory=dict)
    finishes: dict[int, Tokens] = field(default_factory=dict)
    admitted: Admitted | None = None


async def collect(engine: TokenEngine, request: TokenRequest) -> Answered:
    answered = Answered()
    async with aclosing(engine.generate(request)) as items:
        async for item in items:
            if isinstance(item, Admitted):
                assert answered.admitted is None
                answered.admitted = item
                continue
            assert item.choice not in answered.finishes
            answered.tokens.setdefault(item.choice, []).extend(item.token_ids)
            answered.scores.setdefault(item.choice, []).extend(item.scores)
            if item.finish:
                answered.finishes[item.choice] = item
    return answered
