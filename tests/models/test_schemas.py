"""The default model under grammars: what ends with ``stop`` always parses and validates."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import jsonschema
import pytest

from configs.settings import EngineSettings, ModelSettings
from models.build import build_scheduled
from models.events import Finished, FinishReason, Text
from models.request import ChatPrompt, GenerateRequest, Grammar, SamplingParams
from models.scheduled import Scheduled
from tests.models.schemas import SCHEMAS

pytestmark = pytest.mark.slow

MANY = 16  # at once
MOST_TOKENS = 160


@pytest.fixture(scope="module")
def model(smollm2: Path) -> Iterator[Scheduled]:
    engine = EngineSettings(max_running=MANY, kv_cache_gib=0.5)
    settings = ModelSettings(name="smollm2", source=str(smollm2), engine=engine)
    with build_scheduled(settings) as made:
        yield made


def ask(model: Scheduled, name: str, grammar: Grammar, seed: int = 0) -> tuple[str, Finished]:
    question = f"Answer with an example of: {name}. Be brief."
    request = GenerateRequest(
        id=f"{name} {seed}",
        prompt=ChatPrompt(({"role": "user", "content": question},)),
        sampling=SamplingParams(max_tokens=MOST_TOKENS, temperature=0.8, seed=seed),
        grammar=grammar,
    )
    events = list(model.stream(request))
    text = "".join(event.delta for event in events if isinstance(event, Text))
    return text, next(event for event in events if isinstance(event, Finished))


def test_every_schema_is_followed(model: Scheduled) -> None:
    assert len(SCHEMAS) >= 50

    def one(name: str) -> tuple[str, Finished]:
        return ask(model, name, Grammar("json_schema", json.dumps(SCHEMAS[name])))

    with ThreadPoolExecutor(MANY) as pool:
        answers = dict(zip(SCHEMAS, pool.map(one, SCHEMAS), strict=True))
    cut = [name for name, (_, end) in answers.items() if end.reason == FinishReason.LENGTH]
    for name in SCHEMAS.keys() - cut:
        assert answers[name][1].reason == FinishReason.STOP
        check(name, answers[name][0])
    assert len(cut) <= len(SCHEMAS) // 10, f"too few came to an end: {cut}"


def check(name: str, text: str) -> None:
    draft = jsonschema.Draft202012Validator
    validator = draft(SCHEMAS[name], format_checker=draft.FORMAT_CHECKER)
    errors = [error.message for error in validator.iter_errors(json.loads(text))]
    assert not errors, f"{name}: {text}"


@pytest.mark.parametrize(
    ("grammar", "pattern"),
    [
        (Grammar("regex", r"[A-Z][a-z]{2,9} \d{1,2}, (19|20)\d\d"), None),
        (Grammar("regex", r"(\+|-)?\d{1,3}(\.\d{1,4})?"), None),
        (Grammar("choice", '["yes", "no", "perhaps é"]'), "yes|no|perhaps é"),
        (Grammar("lark", 'start: "<b>" /[a-z ]{1,20}/ "</b>"'), "<b>[a-z ]{1,20}</b>"),
        (Grammar("gbnf", 'root ::= n ("+" n){1,3}\nn ::= [0-9]{1,3}'), r"\d{1,3}(\+\d{1,3}){1,3}"),
    ],
)
def test_other_grammars_are_followed(
    model: Scheduled, grammar: Grammar, pattern: str | None
) -> None:
    for seed in range(3):
        text, end = ask(model, grammar.source, grammar, seed)
        assert end.reason == FinishReason.STOP
        assert re.fullmatch(pattern or grammar.source, text), text


def test_any_object_is_one(model: Scheduled) -> None:
    text, end = ask(model, "a cat", Grammar("json_object"))
    if end.reason == FinishReason.STOP:
        assert isinstance(json.loads(text), dict)
