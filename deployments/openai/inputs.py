"""Texts and token ids in a body, as prompts and as inputs to embed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from deployments.openai.errors import ApiError, invalid, kind, wrong_type
from models.request import TextPrompt, TokenPrompt

EXPECTED = "a string, an array of strings, an array of token ids, or an array of such arrays"

Input = TextPrompt | TokenPrompt
MakeText = Callable[[str, str], TextPrompt]  # of a text and the name of its place in the body


def parse_inputs(
    value: Any, param: str, text: MakeText, check: Callable[[int], None]
) -> Sequence[Input]:
    """One by itself or all of a list; ``check`` raises if a list must not hold so many.

    Raises ``ApiError`` naming the one that is neither a text nor token ids, or not as the first is.
    """
    if isinstance(value, str):
        return [text(value, param)]
    if not isinstance(value, list) or not value:
        raise _wrong_prompt(value, param)
    if is_token(value[0]):
        return [_token_prompt(value, param)]
    check(len(value))
    like = type(value[0])
    return [_one(one, like, f"{param}[{i}]", text) for i, one in enumerate(value)]


def is_token(value: Any) -> bool:
    """Whether it is an integer, which true and false are not."""
    return type(value) is int


def _one(value: Any, like: type, param: str, text: MakeText) -> Input:
    if type(value) is not like or not isinstance(value, str | list):
        raise _wrong_prompt(value, param)
    return text(value, param) if isinstance(value, str) else _token_prompt(value, param)


def _token_prompt(values: list[Any], param: str) -> TokenPrompt:
    """Raises ``ApiError`` naming the element that is no token id."""
    if not values:
        raise _wrong_prompt(values, param)
    for i, value in enumerate(values):
        if not is_token(value):
            raise wrong_type("a token id", value, f"{param}[{i}]")
        if not 0 <= value < 2**63:
            raise invalid(f"Invalid value for '{param}[{i}]': not a token id.", f"{param}[{i}]")
    return TokenPrompt(tuple(values))


def _wrong_prompt(value: Any, param: str) -> ApiError:
    """The error of what is neither a text nor token ids, nor a list of such."""
    if value == []:
        return invalid(f"Invalid value for '{param}': it must not be empty.", param, "empty_array")
    message = f"Invalid type for '{param}': expected {EXPECTED}, but got {kind(value)} instead."
    return invalid(message, param, "invalid_type")
