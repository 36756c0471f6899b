"""A model and its adapters through one engine: answers, prefixes in the cache, and counts."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from configs.settings import AdapterSettings, ModelSettings
from models.build import metrics_of
from models.errors import Invalid
from models.metrics import LlmMetrics
from models.request import SamplingParams
from models.schedule.admission import Admission
from models.schedule.lookup import Drafting
from models.step_loop import StepLoop
from models.stepper import Stepper
from models.token_engine import TokenEngine
from models.tokens import TokenRequest
from tests.models.asking import Answered, assert_nothing_held, collect
from tests.models.step.adapting import ALL, adapter_folder, adapters_of, merged
from tests.models.step.tiny import greedy, served, tiny

NAMES = (None, "a", "b")
PROMPT = (7, 11, 13, 5) * 5
NEW = 12
SETTINGS = ModelSettings(
    name="base",
    source="org/base",
    adapters=[AdapterSettings(name=name, source="somewhere") for name in "ab"],
)


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    path = tmp_path_factory.mktemp("adapters")
    return {n: adapter_folder(path / n, tiny("llama"), ALL, seed=i) for i, n in enumerate("ab")}


@pytest.fixture(scope="module")
def expected(folders: dict[str, Path]) -> dict[str | None, list[int]]:
    """What each answers to the prompt: all different."""
    models = {n: merged(tiny("llama"), folder) for n, folder in folders.items()}
    texts = {n: greedy(models.get(n or "", tiny("llama")), [*PROMPT], NEW) for n in NAMES}
    assert len({*map(tuple, texts.values())}) == len(NAMES)
    return texts


@asynccontextmanager
async def serving(
    folders: dict[str, Path], metrics: LlmMetrics, drafting: Drafting | None = None
) -> AsyncGenerator[TokenEngine, None]:
    model = tiny("llama")
    adapters = adapters_of(model, *folders.values())
    paged = served(model, adapters=adapters, block_size=16, kv_cache_gib=0.01)
    stepper = Stepper(paged, step_tokens=16, metrics=metrics, drafting=drafting)
    engine = TokenEngine(stepper, StepLoop(stepper), Admission(6, 100, 10_000), metrics)
    yield engine
    assert stepper.failure is None
    assert_nothing_held(engine)
    stepper.close()


async def asked(engine: TokenEngine, adapter: str | None, logprobs: int | None = None) -> Answered:
    sampling = SamplingParams(max_tokens=NEW, temperature=0, logprobs=logprobs)
    request = TokenRequest(f"{adapter}", PROMPT, sampling, frozenset(), adapter=adapter)
    return await collect(engine, request)


async def test_each_finds_only_its_own_beginnings(
    folders: dict[str, Path], expected: dict[str | None, list[int]]
) -> None:
    async with serving(folders, metrics_of(SETTINGS)) as engine:
        for cached in (0, 16):
            for name in NAMES:
                answer = await asked(engine, name)
                assert answer.admitted is not None
                assert (answer.admitted.cached_tokens, answer.tokens[0]) == (cached, expected[name])


@pytest.mark.parametrize("drafting", [None, Drafting(4, 2)])
async def test_all_at_once_answer_as_they_do_alone(
    folders: dict[str, Path], expected: dict[str | None, list[int]], drafting: Drafting | None
) -> None:
    async with serving(folders, metrics_of(SETTINGS), drafting) as engine:
        answers = await asyncio.gather(*(asked(engine, name, logprobs=1) for name in NAMES))
    assert [answer.tokens[0] for answer in answers] == [expected[name] for name in NAMES]
    for answer in answers:
        assert [score.top[0][0] for score in answer.scores[0]] == answer.tokens[0]


async def test_what_is_asked_of_an_adapter_counts_as_its_own(folders: dict[str, Path]) -> None:
    metrics = metrics_of(SETTINGS)
    async with serving(folders, metrics) as engine:
        for name in ("a", "a", None):
            await asked(engine, name)
    found = {
        labels["model"]: value
        for name, pairs, value in metrics.samples()
        if name == "stepserve_generated_tokens_total" and (labels := dict(pairs))
    }
    assert found == {"base": NEW, "a": 2 * NEW, "b": 0}


async def test_an_adapter_that_is_not_there_is_refused(folders: dict[str, Path]) -> None:
    request = TokenRequest("1", PROMPT, SamplingParams(), frozenset())
    async with serving(folders, metrics_of(SETTINGS)) as engine:
        with pytest.raises(Invalid, match="The model has no adapter 'c'"):
            await collect(engine, replace(request, adapter="c"))
