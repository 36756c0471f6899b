"""``/v1/embeddings``: from its JSON to a request, from vectors to its answer."""

from __future__ import annotations

import struct
from base64 import b64encode
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict

from deployments.openai.call import Integer, known_as, user_of, validated
from deployments.openai.errors import invalid, missing
from deployments.openai.inputs import Input, is_token, parse_inputs
from deployments.openai.parameters import check_extras
from deployments.openai.sse import quote
from deployments.openai.users import of_key
from models.embedding import MAX_INPUTS, Embedded, EmbedRequest
from models.request import TextPrompt

NEUTRAL = {"add_special_tokens": (True,), "truncation_side": ("right",)}


class EmbeddingsBody(BaseModel):
    """The JSON of a request. Null is the default everywhere; unknown keys are kept as extras."""

    model_config = ConfigDict(extra="allow", strict=True)

    model: str
    input: Any = None
    encoding_format: Literal["float", "base64"] | None = None
    dimensions: Integer | None = None
    truncate_prompt_tokens: Integer | None = None
    request_id: str | None = known_as("request_id", "rid")


@dataclass(frozen=True, slots=True)
class EmbedCall:
    """One HTTP request. ``name`` is its caller's for it."""

    model: str
    request: EmbedRequest
    base64: bool
    name: str | None

    def asked_with(self, key: str) -> EmbedRequest:
        """Its request, of the API key with this opaque name."""
        return of_key(self.request, key)


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
        user=user_of(body.model_extra or {}),
    )
    return EmbedCall(body.model, request, body.encoding_format == "base64", body.request_id)


def parse_input(value: Any) -> tuple[tuple[Input, ...], bool]:
    """The inputs, and whether it is one by itself. Raises ``ApiError`` naming the wrong one."""
    if value is None:
        raise missing("input")
    inputs = tuple(parse_inputs(value, "input", _text, _check_count))
    return inputs, isinstance(value, str) or is_token(value[0])


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


def _check_count(inputs: int) -> None:
    if inputs > MAX_INPUTS:
        message = f"At most {MAX_INPUTS} inputs are allowed in one request, not {inputs}."
        raise invalid(message, "input", "array_above_max_length")


def _text(value: str, param: str) -> TextPrompt:
    if not value:
        raise invalid(f"Invalid value for '{param}': it must not be empty.", param, "empty_string")
    return TextPrompt(value)
