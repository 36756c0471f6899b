"""Token ids in a body, as prompts and as inputs to embed."""

from __future__ import annotations

from typing import Any

from deployments.openai.errors import ApiError, invalid, kind, wrong_type
from models.request import TokenPrompt

EXPECTED = "a string, an array of strings, an array of token ids, or an array of such arrays"


def is_token(value: Any) -> bool:
    """Whether it is an integer, which true and false are not."""
    return type(value) is int


def token_prompt(values: list[Any], param: str) -> TokenPrompt:
    """Raises ``ApiError`` naming the element that is no token id."""
    if not values:
        raise wrong_prompt(values, param)
    for i, value in enumerate(values):
        if not is_token(value):
            raise wrong_type("a token id", value, f"{param}[{i}]")
        if not 0 <= value < 2**63:
            raise invalid(f"Invalid value for '{param}[{i}]': not a token id.", f"{param}[{i}]")
    return TokenPrompt(tuple(values))


def wrong_prompt(value: Any, param: str) -> ApiError:
    """The error of what is neither a text nor token ids, nor a list of such."""
    if value == []:
        return invalid(f"Invalid value for '{param}': it must not be empty.", param, "empty_array")
    message = f"Invalid type for '{param}': expected {EXPECTED}, but got {kind(value)} instead."
    return invalid(message, param, "invalid_type")
