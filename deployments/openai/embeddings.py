"""``/v1/embeddings``: from its JSON to a request, from vectors to its answer."""

from __future__ import annotations

import struct
from base64 import b64encode
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict

from deployments.openai.call import Integer, validated
from deployments.openai.errors import invalid, missing
from deployments.openai.parameters import check_extras
from deployments.openai.sse import quote
from deployments.openai.token_ids import is_token, token_prompt, wrong_prompt
from models.embedding import MAX_INPUTS, Embedded, EmbedRequest
from models.request import TextPrompt, TokenPrompt

NEUTRAL = {"add_special_tokens": (True,), "truncation_side": ("right",)}

Input = TextPrompt | TokenPrompt


class EmbeddingsBody(BaseModel):
    """The JSON of a request. Null is the default everywhere; unknown keys are kept as extras."""

    model_config = ConfigDict(extra="allow", strict=True)

    model: str
    input: Any = None
    encoding_format: Literal["float", "base64"] | None = None
    dimensions: Integer | None = None
    truncate_prompt_tokens: Integer | None = None


@dataclass(frozen=True, slots=True)
class EmbedCall:
    """One HTTP request."""

    model: str
    request: EmbedRequest
    base64: bool


def parse(data: Mapping[str, Any], id: str) -> EmbedCall:
    """Raises ``ApiError`` or ``Invalid``."""
    body = validated(EmbeddingsBody, data)
    check_extras(body.model_extra or {}, NEUTRAL)
    inputs, single = parse_input(body.input)
    request = EmbedRequest(
        id=id,
        inputs=inputs,
        single=single,
        dimensions=body.dimensions,
        truncate=body.truncate_prompt_tokens,
    )
    return EmbedCall(body.model, request, body.encoding_format == "base64")


def parse_input(value: Any) -> tuple[tuple[Input, ...], bool]:
    """The inputs, and whether it is one by itself. Raises ``ApiError`` naming the wrong one."""
    if value is None:
        raise missing("input")
    if isinstance(value, str):
        return (_text(value, "input"),), True
    if not isinstance(value, list) or not value:
        raise wrong_prompt(value, "input")
    if is_token(value[0]):
        return (token_prompt(value, "input"),), True
    if len(value) > MAX_INPUTS:
        message = f"At most {MAX_INPUTS} inputs are allowed in one request, not {len(value)}."
        raise invalid(message, "input", "array_above_max_length")
    return tuple(_one(one, type(value[0]), f"input[{i}]") for i, one in enumerate(value)), False


def write(call: EmbedCall, embedded: Embedded) -> str:
    """The JSON of the answer; vectors are written with all digits that a float32 has."""
    form = _base64 if call.base64 else _numbers
    data = ",".join(
        f'{{"object":"embedding","index":{i},"embedding":{form(vector)}}}'
        for i, vector in enumerate(embedded.vectors)
    )
    tokens = embedded.prompt_tokens
    usage = f'{{"prompt_tokens":{tokens},"total_tokens":{tokens}}}'
    return f'{{"object":"list","data":[{data}],"model":{quote(call.model)},"usage":{usage}}}'


def _numbers(vector: bytes) -> str:
    values = struct.unpack(f"<{len(vector) // 4}f", vector)
    return f"[{','.join(map('{:.9g}'.format, values))}]"


def _base64(vector: bytes) -> str:
    return f'"{b64encode(vector).decode()}"'


def _one(value: Any, like: type, param: str) -> Input:
    if type(value) is not like or not isinstance(value, str | list):
        raise wrong_prompt(value, param)
    return _text(value, param) if isinstance(value, str) else token_prompt(value, param)


def _text(value: str, param: str) -> TextPrompt:
    if not value:
        raise invalid(f"Invalid value for '{param}': it must not be empty.", param, "empty_string")
    return TextPrompt(value)
