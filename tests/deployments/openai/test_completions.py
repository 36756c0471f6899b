from __future__ import annotations

from typing import Any

import pytest

from models.mock import MockEngine
from models.request import Prompt, TextPrompt, TokenPrompt
from tests.deployments.schemas import check
from tests.deployments.serving import complete, make_app


async def test_sixteen_tokens_are_the_default() -> None:
    app = make_app(MockEngine("mock", pieces=["a"]))
    for limit in ({}, {"max_tokens": None}):
        answer = await complete(app, ignore_eos=True, **limit)
        assert answer.json()["usage"]["completion_tokens"] == 16


@pytest.mark.parametrize(
    ("prompt", "prompts"),
    [
        ("Hi", [TextPrompt("Hi")]),
        ("", [TextPrompt("")]),
        (None, [TextPrompt("")]),
        (["a", "b"], [TextPrompt("a"), TextPrompt("b")]),
        ([1, 2], [TokenPrompt((1, 2))]),
        ([[1], [2, 3]], [TokenPrompt((1,)), TokenPrompt((2, 3))]),
    ],
)
async def test_prompts_take_all_forms(prompt: Any, prompts: list[Prompt]) -> None:
    engine = MockEngine("mock")
    assert (await complete(make_app(engine), prompt=prompt)).status_code == 200
    assert [request.prompt for request in engine.requests] == prompts
    assert len({request.id for request in engine.requests}) == len(prompts)


@pytest.mark.parametrize(
    ("prompt", "param"),
    [
        ([], "prompt"),
        ([[]], "prompt[0]"),
        ([1, "a"], "prompt[1]"),
        (["a", 1], "prompt[1]"),
        ([[1], "a"], "prompt[1]"),
        ([True], "prompt[0]"),
        ([[1, None]], "prompt[0][1]"),
        ([-1], "prompt[0]"),
        ([2**70], "prompt[0]"),
        ({}, "prompt"),
        (3, "prompt"),
    ],
)
async def test_other_prompts_are_refused_by_name(prompt: Any, param: str) -> None:
    answer = await complete(make_app(), prompt=prompt)
    assert answer.status_code == 400
    check("ErrorResponse", answer.json())
    assert answer.json()["error"]["param"] == param


async def test_too_many_prompts_are_refused() -> None:
    answer = await complete(make_app(), prompt=["a"] * 2049)
    assert answer.status_code == 400
    message = "At most 2048 prompts are allowed in one request."
    assert answer.json()["error"]["message"] == message


async def test_one_bad_prompt_fails_the_request() -> None:
    engine = MockEngine("mock", max_context=4, first_token_s=0.01)
    for stream in (False, True):
        answer = await complete(make_app(engine), prompt=["a", "b c d e f"], stream=stream)
        assert answer.status_code == 400
        assert answer.json()["error"]["code"] == "context_length_exceeded"
        assert answer.json()["error"]["param"] == "prompt"
        assert engine.live == 0


async def test_a_request_is_not_busy_because_of_its_own_size() -> None:
    for n in (1, 8):
        app = make_app(MockEngine("mock", max_running=32 // n))
        assert (await complete(app, prompt=["a"] * 100, n=n)).status_code == 200


@pytest.mark.parametrize(
    "extra", [{"best_of": 2, "n": 2}, {"best_of": 1}, {"echo": False}, {"suffix": ""}]
)
async def test_neutral_values_pass(extra: dict[str, Any]) -> None:
    assert (await complete(make_app(), **extra)).status_code == 200


@pytest.mark.parametrize(
    "extra",
    [
        {"best_of": 2, "n": 3},
        {"best_of": 2, "stream": True},
        {"best_of": 129},
        {"suffix": "x"},  # to a model that knows of no holes
        {"suffix": "x", "prompt": [1, 2]},
        {"echo": True, "suffix": "x"},
        {"truncate_prompt_tokens": 1, "suffix": "x"},
        {"logprobs": 21},
        {"logprobs": True},
        {"max_tokens": -1},
        {"echo": "yes"},
    ],
)
async def test_what_would_change_the_answer_is_refused(extra: dict[str, Any]) -> None:
    answer = await complete(make_app(), **extra)
    assert answer.status_code == 400
    assert answer.json()["error"]["param"] == next(iter(extra))
