"""``/tokenize``, ``/detokenize`` and the counts of tokens: their bodies and answers, as vLLM's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel, ConfigDict

from deployments.openai import chat
from deployments.openai.call import Integer, validated
from deployments.openai.errors import ApiError, invalid, missing
from deployments.openai.parameters import check_extras
from models.request import Prompt, TextPrompt


class TokenizeBody(BaseModel):
    """A raw prompt; with ``messages`` instead, it is the body of a chat."""

    model_config = ConfigDict(extra="allow", strict=True)

    model: str | None = None
    prompt: str
    add_special_tokens: bool | None = None


class OwnFields(BaseModel):
    """What no chat has."""

    model_config = ConfigDict(extra="ignore", strict=True)

    model: str | None = None
    return_token_strs: bool | None = None


class DetokenizeBody(BaseModel):
    model_config = ConfigDict(extra="allow", strict=True)

    model: str | None = None
    tokens: list[Integer]


@dataclass(frozen=True, slots=True)
class TokenizeCall:
    """``model`` is None where the caller names none."""

    model: str | None
    prompt: Prompt
    special_tokens: bool
    strings: bool = False


@dataclass(frozen=True, slots=True)
class DetokenizeCall:
    model: str | None
    token_ids: tuple[int, ...]


def parse_tokenize(data: Mapping[str, Any]) -> TokenizeCall:
    """Raises ``ApiError`` or ``Invalid``."""
    own = validated(OwnFields, data)
    rest = {key: value for key, value in data.items() if key != "return_token_strs"}
    if data.get("messages") is None:
        if data.get("prompt") is None:
            raise missing("prompt")
        return _of_prompt(rest, bool(own.return_token_strs))
    if data.get("prompt") is not None:
        raise invalid("Give either 'prompt' or 'messages', not both.", "prompt")
    prompt = _chat_prompt({**rest, "model": own.model or ""})
    return TokenizeCall(own.model, prompt, False, bool(own.return_token_strs))


def parse_count(data: Mapping[str, Any]) -> TokenizeCall:
    """The body of a chat, to be counted only. Raises ``ApiError`` or ``Invalid``."""
    prompt = _chat_prompt(data)
    return TokenizeCall(data["model"], prompt, False)


def parse_detokenize(data: Mapping[str, Any]) -> DetokenizeCall:
    """Raises ``ApiError``."""
    body = validated(DetokenizeBody, data)
    check_extras(body.model_extra or {}, {})
    for i, token in enumerate(body.tokens):
        if token < 0:
            raise invalid(f"Invalid value for 'tokens[{i}]': not a token id.", f"tokens[{i}]")
    return DetokenizeCall(body.model, tuple(body.tokens))


def tokens_answer(
    token_ids: Sequence[int], max_context: int, strings: Sequence[str] | None
) -> dict[str, Any]:
    """vLLM's answer; ``max_context`` in tokens."""
    return {
        "count": len(token_ids),
        "max_model_len": max_context,
        "tokens": list(token_ids),
        "token_strs": None if strings is None else list(strings),
    }


def count_answer(tokens: int) -> dict[str, Any]:
    """OpenAI's answer to how many tokens an input has."""
    return {"object": "response.input_tokens", "input_tokens": tokens}


def no_tokenizer(model: str) -> ApiError:
    """400: an engine that takes text and tells nothing of its tokens."""
    message = f"The tokenizer of the model '{model}' is not known to this server."
    return invalid(message, "model", "unsupported_value")


def _of_prompt(data: Mapping[str, Any], strings: bool) -> TokenizeCall:
    body = validated(TokenizeBody, data)
    check_extras(body.model_extra or {}, {"messages": ()})
    special = body.add_special_tokens is not False
    return TokenizeCall(body.model, TextPrompt(body.prompt), special, strings)


def _chat_prompt(data: Mapping[str, Any]) -> Prompt:
    given = {key: value for key, value in data.items() if key != "prompt"}
    return chat.parse(given, "count").requests[0].prompt
