"""The default model, which has not learned to call functions, made to do it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from configs.settings import ModelSettings
from models.build import build_scheduled
from models.events import Finished, FinishReason, Reasoning, Text, ToolCall
from models.request import ChatPrompt, GenerateRequest, SamplingParams, ToolChoice
from models.scheduled import Scheduled
from tests.models.text.saying import said

FUNCTIONS: dict[str, Any] = {
    "get_weather": {
        "type": "object",
        "properties": {
            "city": {"type": "string", "maxLength": 30},
            "unit": {"type": "string", "enum": ["celsius", "fahrenheit"]},
            "days": {"type": "integer", "minimum": 1, "maximum": 14},
        },
        "required": ["city", "unit"],
    },
    "book_table": {
        "type": "object",
        "properties": {
            "guests": {
                "type": "array",
                "minItems": 1,
                "maxItems": 3,
                "items": {
                    "type": "object",
                    "properties": {"name": {"type": "string", "maxLength": 20}},
                    "required": ["name"],
                },
            },
            "time": {"type": "string", "pattern": "^[0-2][0-9]:[0-5][0-9]$"},
        },
        "required": ["guests", "time"],
    },
    "now": {},
}
TOOLS = tuple(
    {"type": "function", "function": {"name": name, "description": name, "parameters": schema}}
    for name, schema in FUNCTIONS.items()
)
QUESTIONS = ["What is the weather in Paris?", "A table for Ann and Bob at eight.", "Hello!", "1+1?"]


@pytest.fixture(scope="module")
def engine(smollm2: Path) -> Iterator[Scheduled]:
    with build_scheduled(ModelSettings(name="smollm2", source=str(smollm2))) as made:
        yield made


def calls(engine: Scheduled, question: str, choice: ToolChoice, **sampling: Any) -> FinishReason:
    """Asks, checks every call against its schema, and tells how the answer ended."""
    request = GenerateRequest(
        id=question,
        prompt=ChatPrompt(({"role": "user", "content": question},), tools=TOOLS),
        sampling=SamplingParams(max_tokens=600, **sampling),
        tool_choice=choice,
    )
    *events, end = engine.stream(request)
    assert isinstance(end, Finished)
    made = said(e for e in events if isinstance(e, Text | Reasoning | ToolCall))
    assert made
    for kind, name, arguments in made:
        assert kind == "call"
        assert choice.name in (None, name)
        jsonschema.validate(json.loads(arguments), FUNCTIONS[name])
    assert choice.parallel or len(made) == 1
    return end.reason


@pytest.mark.slow
@pytest.mark.parametrize("question", QUESTIONS)
@pytest.mark.parametrize("sampling", [{"temperature": 0}, {"temperature": 1.0, "seed": 7}])
def test_a_required_call_is_valid(
    engine: Scheduled, question: str, sampling: dict[str, Any]
) -> None:
    choice = ToolChoice("required", parallel=False)
    assert calls(engine, question, choice, **sampling) == FinishReason.TOOL_CALLS


@pytest.mark.slow
@pytest.mark.parametrize("question", QUESTIONS[:2])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_so_is_a_call_of_one_certain_function(engine: Scheduled, question: str, name: str) -> None:
    choice = ToolChoice("required", name)
    assert calls(engine, question, choice, temperature=0.7, seed=3) == FinishReason.STOP


@pytest.mark.slow
def test_so_are_several(engine: Scheduled) -> None:
    reason = calls(engine, QUESTIONS[1], ToolChoice("required"), temperature=0)
    assert reason == FinishReason.TOOL_CALLS
