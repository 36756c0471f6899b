"""A bound of the reasoning as clients see it, over models that would think for ever."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from starlette.applications import Starlette
from tokenizers import AddedToken

from models.constrain.grammars import Grammars
from models.metrics import LlmMetrics
from models.schedule.admission import Admission
from models.scheduled import Scheduled
from models.step.model import StepModel
from models.step.plain import PlainStepModel
from models.step_loop import StepLoop
from models.stepper import Stepper
from models.text.byte_tokenizer import END, byte_tokenizer
from models.text.loading import byte_pipeline
from models.text.pipeline import TextPipeline
from models.token_engine import TokenEngine
from tests.deployments.anthropic.asking import ask, told
from tests.deployments.serving import chat, events, make_app
from tests.models.babbling import babbling
from tests.models.text.reasoning import reasoning_pipeline
from tests.models.text.vocabularies import id_of
from tests.models.thinker import Thinker

HARMONY = ("<|start|>", "<|channel|>", "<|message|>", "<|constrain|>", "<|call|>", "<|return|>")
WORDS = ("analysis", "final", "assistant")
TEMPLATE = "{{ messages[0].content }}<|assistant|>"
OPENED = {"enable_thinking": True}


@contextmanager
def serving(model: StepModel, text: TextPipeline) -> Iterator[Starlette]:
    metrics = LlmMetrics("mock")
    stepper = Stepper(model, step_tokens=64, metrics=metrics)
    grammars = Grammars(text.vocabulary, model.capacity.vocab_size)
    admission = Admission(4, 4, 4096)
    engine = TokenEngine(stepper, StepLoop(stepper), admission, metrics, grammars)
    with Scheduled("mock", engine, text) as scheduled:
        yield make_app(scheduled)
    assert stepper.live == 0
    stepper.pool.check()


def thinker(text: TextPipeline, says: dict[str, list[int]], second: str = END) -> StepModel:
    by_id = {id_of(text.tokenizer, marker): said for marker, said in says.items()}
    other = id_of(text.tokenizer, second)
    model = Thinker(by_id, ord("h"), vocab_size=text.vocab_size, second=other)
    return PlainStepModel(model, slots=4)


@pytest.fixture(scope="module")
def app() -> Iterator[Starlette]:
    """It begins to think if the prompt has not, and says ``Yes.`` once it has ended."""
    text = reasoning_pipeline()
    begin, end = (id_of(text.tokenizer, one) for one in ("<think>", END))
    says = {"<|assistant|>": [10, begin], "<think>": [], "</think>": [*b"\n\nYes.", end]}
    with serving(thinker(text, says), text) as made:
        yield made


@pytest.mark.parametrize("budget", [0, 1, 7])
@pytest.mark.parametrize("kwargs", [{}, OPENED])
async def test_chat(app: Starlette, kwargs: dict[str, Any], budget: int) -> None:
    wish: dict[str, Any] = {"thinking_token_budget": budget, "chat_template_kwargs": kwargs}
    body = (await chat(app, temperature=0, return_token_ids=True, **wish)).json()
    (choice,) = body["choices"]
    assert (choice["message"].get("reasoning") or "") == "h" * budget
    assert (choice["message"]["content"], choice["finish_reason"]) == ("Yes.", "stop")
    assert body["usage"]["completion_tokens_details"]["reasoning_tokens"] == budget
    assert choice["token_ids"].count(ord("h")) == budget
    *chunks, _ = events((await chat(app, temperature=0, stream=True, **wish)).text)
    deltas = [chunk["choices"][0]["delta"] for chunk in chunks]
    assert "".join(delta.get("reasoning") or "" for delta in deltas) == "h" * budget
    assert "".join(delta.get("content") or "" for delta in deltas) == "Yes."


async def test_without_a_budget_it_thinks_on(app: Starlette) -> None:
    body = (await chat(app, temperature=0, max_tokens=40)).json()
    (choice,) = body["choices"]
    assert (choice["message"]["content"], choice["finish_reason"]) == (None, "length")


async def test_every_choice_is_bounded(app: Starlette) -> None:
    body = (await chat(app, n=3, temperature=1, thinking_token_budget=4)).json()
    for choice in body["choices"]:
        assert choice["message"]["reasoning"] == "hhhh"
    assert body["usage"]["completion_tokens_details"]["reasoning_tokens"] == 12


async def test_what_else_is_asked_yields(app: Starlette) -> None:
    text = reasoning_pipeline()
    end = id_of(text.tokenizer, "</think>")
    wishes: list[dict[str, Any]] = [
        {"logit_bias": {str(end): -100}},
        {"bad_words": ["</think>"]},
        {"allowed_token_ids": [*b"hYes.\n", id_of(text.tokenizer, "<think>")]},
        {"min_tokens": 20, "repetition_penalty": 1.1},
    ]
    for wish in wishes:
        body = (
            await chat(app, thinking_token_budget=5, max_tokens=25, temperature=0, **wish)
        ).json()
        (choice,) = body["choices"]
        assert choice["message"]["reasoning"] == "hhhhh"
        assert choice["message"]["content"].startswith("Yes.")


async def test_messages(app: Starlette) -> None:
    thinking = {"type": "enabled", "budget_tokens": 6}
    message = (await ask(app, thinking=thinking)).json()
    assert [block["type"] for block in message["content"]] == ["thinking", "text"]
    assert message["content"][0]["thinking"] == "h" * 6
    assert message["content"][1]["text"] == "Yes."
    assert message["usage"]["output_tokens_details"] == {"thinking_tokens": 6}
    assert message["stop_reason"] == "end_turn"
    answer = await ask(app, thinking=thinking, stream=True)
    deltas = [one["delta"] for kind, one in told(answer.text) if kind == "content_block_delta"]
    assert "".join(delta.get("thinking", "") for delta in deltas) == "h" * 6


@pytest.mark.parametrize("value", [-1, "x", 1.5, True])
async def test_what_is_no_budget(app: Starlette, value: Any) -> None:
    refused = await chat(app, thinking_token_budget=value)
    assert refused.status_code == 400
    assert refused.json()["error"]["param"] == "thinking_token_budget"
    refused = await ask(app, thinking={"type": "enabled", "budget_tokens": value})
    assert refused.status_code == 400
    assert "thinking.budget_tokens" in refused.json()["error"]["message"]


async def test_a_model_that_does_not_reason_needs_no_bound() -> None:
    text = byte_pipeline()
    end = id_of(text.tokenizer, END)
    with serving(thinker(text, {"<|assistant|>": [*b"Yes.", end]}), text) as app:
        body = (await chat(app, temperature=0, thinking_token_budget=0)).json()
    assert body["choices"][0]["message"]["content"] == "Yes."


async def test_markers_of_several_tokens_cannot_be_forced() -> None:
    tokenizer = byte_tokenizer()
    text = TextPipeline(tokenizer, special_tokens={}, chat_template=TEMPLATE, reasoning="think")
    with serving(thinker(text, {"<|assistant|>": []}), text) as app:
        assert (await chat(app, max_tokens=2)).status_code == 200
        refused = await chat(app, thinking_token_budget=5)
    assert refused.status_code == 400
    assert refused.json()["error"]["param"] == "thinking_token_budget"
    assert "'<think>'" in refused.json()["error"]["message"]


def harmony() -> TextPipeline:
    tokenizer = byte_tokenizer()
    tokenizer.add_special_tokens([AddedToken(one) for one in HARMONY])
    tokenizer.add_tokens([AddedToken(one, normalized=False) for one in WORDS])
    return TextPipeline(
        tokenizer,
        special_tokens={},
        eos_token_ids=[id_of(tokenizer, "<|return|>")],
        chat_template=TEMPLATE,
        reasoning="harmony",
    )


@pytest.mark.parametrize("budget", [0, 1, 9])
async def test_channels(budget: int) -> None:
    """Of two analyses the second is kept from, as it may be no more than begun."""
    text = harmony()
    channel, message, start, finish = (
        id_of(text.tokenizer, f"<|{name}|>") for name in ("channel", "message", "start", "return")
    )
    analysis, _, role = (id_of(text.tokenizer, word) for word in WORDS)
    says = {
        "<|assistant|>": [channel],
        "<|channel|>": [analysis, message],
        "<|end|>": [start],
        "<|start|>": [role, channel],
        "analysis": [message],
        "final": [message, *b"Yes.", finish],
    }
    with serving(thinker(text, says, second="final"), text) as app:
        body = (await chat(app, temperature=0, thinking_token_budget=budget)).json()
    (choice,) = body["choices"]
    assert (choice["message"].get("reasoning") or "") == "h" * budget
    assert (choice["message"]["content"], choice["finish_reason"]) == ("Yes.", "stop")
    assert body["usage"]["completion_tokens_details"]["reasoning_tokens"] == budget


@pytest.mark.parametrize("special", [False, True])
@pytest.mark.parametrize("kwargs", [{}, OPENED])
async def test_under_a_grammar(kwargs: dict[str, Any], special: bool) -> None:
    """A random model, whose thoughts are often cut within a character."""
    text = reasoning_pipeline(special=special)
    schema = {"type": "object", "properties": {"a": {"enum": [1, 23]}}, "required": ["a"]}
    format = {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}
    spent = set()
    with serving(babbling(vocab_size=text.vocab_size), text) as app:
        for seed in range(8):
            answer = await chat(
                app,
                response_format=format,
                thinking_token_budget=seed % 4,
                chat_template_kwargs=kwargs,
                seed=seed,
                temperature=1.5,
                logit_bias={str(id_of(text.tokenizer, "<think>")): 12},
            )
            assert answer.status_code == 200, answer.text
            body = answer.json()
            (choice,) = body["choices"]
            assert choice["finish_reason"] == "stop"
            assert json.loads(choice["message"]["content"])["a"] in (1, 23)
            count = body["usage"]["completion_tokens_details"]["reasoning_tokens"]
            assert count <= seed % 4
            spent.add(count)
    assert spent == {0, 1, 2, 3}
