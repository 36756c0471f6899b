from __future__ import annotations

from typing import Any

import pytest

from deployments.openai.embeddings import parse
from deployments.openai.errors import ApiError
from models.errors import Invalid
from models.request import TextPrompt, TokenPrompt


def refusal(**body: Any) -> ApiError:
    with pytest.raises(ApiError) as caught:
        parse({"model": "m", "input": "x", **body}, "r")
    assert caught.value.status == 400
    return caught.value


@pytest.mark.parametrize(
    ("given", "inputs"),
    [
        ("a", [TextPrompt("a")]),
        (["a", "b"], [TextPrompt("a"), TextPrompt("b")]),
        ([1, 2], [TokenPrompt((1, 2))]),
        ([[1, 2], [3]], [TokenPrompt((1, 2)), TokenPrompt((3,))]),
    ],
)
def test_an_input_has_four_forms(given: Any, inputs: list[Any]) -> None:
    call = parse({"model": "m", "input": given}, "r")
    assert list(call.request.inputs) == inputs
    assert not call.base64


@pytest.mark.parametrize(
    ("given", "param", "code"),
    [
        (None, "input", "missing_required_parameter"),
        ("", "input", "empty_string"),
        ([], "input", "empty_array"),
        (["a", ""], "input[1]", "empty_string"),
        ([[1], []], "input[1]", "empty_array"),
        (["a", 1], "input[1]", "invalid_type"),
        ([1, "a"], "input[1]", "invalid_type"),
        ([[1], [True]], "input[1][0]", "invalid_type"),
        ([[1], "a"], "input[1]", "invalid_type"),
        ([-1], "input[0]", None),
        ({"text": "a"}, "input", "invalid_type"),
        (3, "input", "invalid_type"),
        ([None], "input[0]", "invalid_type"),
        (["a"] * 2049, "input", "array_above_max_length"),
    ],
)
def test_what_is_no_input_is_named(given: Any, param: str, code: str | None) -> None:
    error = refusal(input=given)
    assert (error.param, error.code) == (param, code)


def test_as_many_inputs_as_openai_takes() -> None:
    assert len(parse({"model": "m", "input": ["a"] * 2048}, "r").request.inputs) == 2048


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("encoding_format", "int8"),
        ("dimensions", "many"),
        ("dimensions", 1.5),
        ("truncate_prompt_tokens", True),
        ("truncation_side", "left"),
        ("add_special_tokens", False),
        ("nonsense", 1),
    ],
)
def test_what_is_not_done_is_refused_by_name(name: str, value: Any) -> None:
    assert refusal(**{name: value}).param == name


@pytest.mark.parametrize(
    ("name", "value"), [("dimensions", 0), ("dimensions", -1), ("truncate_prompt_tokens", 0)]
)
def test_values_out_of_range(name: str, value: int) -> None:
    with pytest.raises(Invalid) as caught:
        parse({"model": "m", "input": "x", name: value}, "r")
    assert caught.value.param == name


def test_what_changes_nothing_is_accepted() -> None:
    body = {"user": "u", "dimensions": None, "encoding_format": None, "truncation_side": "right"}
    assert parse({"model": "m", "input": "x", **body}, "r").request.dimensions is None
