"""Whole answers under grammars, by a model that would never find them by itself."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import jsonschema
import pytest

from configs.settings import EngineSettings, ModelSettings
from models.build import build_scheduled
from models.errors import Failed, Invalid
from models.events import Event, Finished, FinishReason, Started, Text
from models.request import GenerateRequest, Grammar, SamplingParams, TextPrompt
from models.scheduled import Scheduled
from tests.models.counted import counted

PERSON = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 8},
        "age": {"type": "integer", "minimum": 0, "maximum": 130},
        "likes": {"type": "array", "items": {"enum": ["tea", "rain", None]}, "maxItems": 2},
    },
    "required": ["name", "age", "likes"],
    "additionalProperties": False,
}
SCHEMA = Grammar("json_schema", json.dumps(PERSON))
numbers = itertools.count()


@contextmanager
def engine(*, max_running: int = 6, **wishes: Any) -> Iterator[Scheduled]:
    settings = ModelSettings(
        name="babbling",
        factory="tests.models.babbling:babbling",
        factory_args=wishes,
        engine=EngineSettings(max_running=max_running, step_tokens=32),
    )
    with build_scheduled(settings) as made:
        yield made
        assert made.engine.stepper.live == 0
        made.engine.stepper.pool.check()


@pytest.fixture(scope="module")
def babbling() -> Iterator[Scheduled]:
    with engine() as made:
        yield made


@pytest.fixture(scope="module")
def ahead() -> Iterator[Scheduled]:
    with engine(launch_ahead=True) as made:
        yield made


def ask(grammar: Grammar | None, prompt: str = "x", n: int = 1, **sampling: Any) -> GenerateRequest:
    return GenerateRequest(
        id=str(next(numbers)),
        prompt=TextPrompt(prompt),
        sampling=SamplingParams(**{"max_tokens": 300, "seed": 1, **sampling}),
        grammar=grammar,
        n=n,
    )


def answer(engine: Scheduled, request: GenerateRequest) -> tuple[str, Finished]:
    events = list(engine.stream(request))
    return text_of(events), next(e for e in events if isinstance(e, Finished))


def text_of(events: list[Event], choice: int = 0) -> str:
    return "".join(e.delta for e in events if isinstance(e, Text) and e.choice == choice)


def check(text: str, schema: Any = PERSON) -> None:
    jsonschema.validate(json.loads(text), schema)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("wish", [{"temperature": 0}, {"temperature": 1.5}, {"top_p": 0.5}])
def test_an_answer_that_stops_is_valid(
    babbling: Scheduled, wish: dict[str, Any], seed: int
) -> None:
    text, end = answer(babbling, ask(SCHEMA, f"prompt {seed}", seed=seed, **wish))
    assert end.reason == FinishReason.STOP
    assert end.stop is None
    check(text)


def test_every_choice_is_valid_and_they_differ(babbling: Scheduled) -> None:
    events = list(babbling.stream(ask(SCHEMA, n=5)))
    texts = [text_of(events, choice) for choice in range(5)]
    for text in texts:
        check(text)
    assert len(set(texts)) > 1


def test_the_same_seed_gives_the_same_answer_whatever_shares_its_batch(
    babbling: Scheduled, ahead: Scheduled
) -> None:
    requests = [(g, f"prompt {i}", i) for i in range(4) for g in (SCHEMA, None)]

    def run(engine: Scheduled, one: tuple[Grammar | None, str, int]) -> str:
        grammar, prompt, seed = one
        return answer(engine, ask(grammar, prompt, seed=seed, max_tokens=100))[0]

    alone = [run(babbling, one) for one in requests]
    for engine in (babbling, ahead):
        with ThreadPoolExecutor(len(requests)) as pool:
            together = list(pool.map(lambda one: run(engine, one), requests))  # noqa: B023
        assert together == alone


@pytest.mark.parametrize("launch_ahead", [False, True])
def test_preemption_changes_nothing(babbling: Scheduled, launch_ahead: bool) -> None:
    def ask_one(seed: int) -> GenerateRequest:
        return ask(SCHEMA, "p" * 40, seed=seed, temperature=1.2)

    alone = [answer(babbling, ask_one(seed))[0] for seed in range(8)]
    with engine(kv_cache_gib=0.00006, max_context=160, launch_ahead=launch_ahead) as tight:
        with ThreadPoolExecutor(8) as pool:
            texts = list(pool.map(lambda seed: answer(tight, ask_one(seed))[0], range(8)))
        assert counted(tight.engine, "preemptions") > 0
    for text, by_itself in zip(texts, alone, strict=True):
        assert text == by_itself[: len(text)]


def test_an_answer_cut_by_length_says_so(babbling: Scheduled) -> None:
    text, end = answer(babbling, ask(SCHEMA, max_tokens=5))
    assert end.reason == FinishReason.LENGTH
    assert end.usage.completion_tokens == 5
    assert text.startswith("{")


def test_ignore_eos_and_min_tokens_yield_to_the_end_of_the_grammar(babbling: Scheduled) -> None:
    wishes: list[dict[str, Any]] = [{"ignore_eos": True}, {"min_tokens": 100}]
    for wish in [*wishes, {"logit_bias": {257: 100.0}}]:
        text, end = answer(babbling, ask(Grammar("regex", r"\d{3}-[a-f]{2}"), **wish))
        assert re.fullmatch(r"\d{3}-[a-f]{2}", text)
        assert end.reason == FinishReason.STOP
    text, end = answer(babbling, ask(Grammar("regex", "a*"), ignore_eos=True, max_tokens=20))
    assert (text, end.reason) == ("a" * 20, FinishReason.LENGTH)
    text, _ = answer(babbling, ask(Grammar("regex", "a*"), min_tokens=9))
    assert len(text) >= 9


def test_an_end_that_is_no_token_is_not_counted(babbling: Scheduled) -> None:
    _, with_sign = answer(babbling, ask(Grammar("regex", "abc")))
    _, without = answer(babbling, ask(Grammar("regex", "abc"), ignore_eos=True))
    assert with_sign.usage.completion_tokens == 4
    assert without.usage.completion_tokens == 3


def test_a_stop_token_may_come_only_where_the_answer_may_end(babbling: Scheduled) -> None:
    control = 260
    sampling: dict[str, Any] = {"stop_token_ids": (control,), "logit_bias": {control: 100.0}}
    text, end = answer(babbling, ask(SCHEMA, **sampling))
    check(text)
    assert end.stop == control


def test_a_bad_grammar_fails_its_own_request_before_it_starts(babbling: Scheduled) -> None:
    with ThreadPoolExecutor(2) as pool:
        good = pool.submit(answer, babbling, ask(SCHEMA, "good"))
        with pytest.raises(Invalid, match="Invalid type: nothing") as refused:
            next(babbling.stream(ask(Grammar("json_schema", '{"type": "nothing"}', "guided_json"))))
        check(good.result()[0])
    assert refused.value.param == "guided_json"
    assert babbling.engine.admission.running == 0


MANY = " | ".join(" ".join(["s"] * count) for count in range(2, 9))
AMBIGUOUS = Grammar("lark", f'start: s\ns: {MANY} | "a"')


def test_a_grammar_that_grows_too_complex_fails_its_own_request(babbling: Scheduled) -> None:
    with ThreadPoolExecutor(2) as pool:
        good = pool.submit(answer, babbling, ask(SCHEMA, "good", n=3))
        with pytest.raises(Invalid, match=r"items|too long"):
            answer(babbling, ask(AMBIGUOUS, max_tokens=450, ignore_eos=True))
        check(good.result()[0])


def test_what_a_grammar_does_not_touch_streams_as_ever(babbling: Scheduled) -> None:
    events = list(babbling.stream(ask(SCHEMA)))
    assert isinstance(events[0], Started)
    assert sum(isinstance(event, Text) for event in events) > 5


def test_a_model_without_grammars_refuses(babbling: Scheduled) -> None:
    babbling.engine._grammars, kept = None, babbling.engine._grammars
    with pytest.raises(Invalid, match="follows no grammars"):
        answer(babbling, ask(SCHEMA))
    babbling.engine._grammars = kept


def test_a_step_model_that_ignores_rulings_fails_and_never_answers() -> None:
    settings = ModelSettings(name="recall", factory="tests.graph.own_models:recall")
    with build_scheduled(settings) as careless, pytest.raises((Failed, Invalid)):
        answer(careless, ask(Grammar("regex", "é{50}")))
