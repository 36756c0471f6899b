from __future__ import annotations

from typing import Any

import pytest

from deployments.openai.errors import ApiError
from deployments.openai.inputs import Input, parse_inputs
from models.request import TextPrompt, TokenPrompt


class TooMany(Exception):
    pass


def parsed(value: Any) -> list[Input]:
    """Texts tell their place."""
    return list(parse_inputs(value, "x", lambda text, param: TextPrompt(f"{param}={text}"), check))


def check(count: int) -> None:
    if count > 3:
        raise TooMany


@pytest.mark.parametrize(
    ("value", "inputs"),
    [
        ("a", [TextPrompt("x=a")]),
        (["a", ""], [TextPrompt("x[0]=a"), TextPrompt("x[1]=")]),
        ([1, 2, 3, 4], [TokenPrompt((1, 2, 3, 4))]),
        ([[1], [2, 3]], [TokenPrompt((1,)), TokenPrompt((2, 3))]),
    ],
)
def test_an_input_is_one_by_itself_or_each_of_a_list(value: Any, inputs: list[Input]) -> None:
    assert parsed(value) == inputs


@pytest.mark.parametrize(
    ("value", "param", "code"),
    [
        (None, "x", "invalid_type"),
        ([], "x", "empty_array"),
        ([[]], "x[0]", "empty_array"),
        ([None], "x[0]", "invalid_type"),
        (["a", [1]], "x[1]", "invalid_type"),
        ([[1], 2], "x[1]", "invalid_type"),
        ([1, True], "x[1]", "invalid_type"),
        ([[1], [2, "a"]], "x[1][1]", "invalid_type"),
        ([1, -1], "x[1]", None),
        ([[2**63]], "x[0][0]", None),
    ],
)
def test_what_is_no_input_is_named(value: Any, param: str, code: str | None) -> None:
    with pytest.raises(ApiError) as caught:
        parsed(value)
    assert (caught.value.param, caught.value.code) == (param, code)


def test_lists_are_counted_before_any_of_them_is_looked_at() -> None:
    with pytest.raises(TooMany):
        parsed([None] * 4)
