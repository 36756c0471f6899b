"""``/v1/responses``: from its JSON to a generation request."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel, ConfigDict

from deployments.openai.call import Call, Count, validated
from deployments.openai.errors import invalid
from deployments.openai.parameters import EMPTY, NOTHING, check_extras, unsupported
from deployments.responses.items import Item, parse_input, to_messages
from models.request import ChatPrompt, GenerateRequest, SamplingParams

# Nothing in the answer depends on these.
HARMLESS = frozenset(
    {
        "prompt_cache_key",
        "prompt_cache_options",
        "prompt_cache_retention",
        "safety_identifier",
        "service_tier",
        "user",
    }
)

# The values that ask for what is done anyway, of parameters that are not supported.
NEUTRAL: Mapping[str, Collection[Any]] = {
    "background": (False,),
    "context_management": EMPTY,
    "conversation": NOTHING,
    # What is thought is told in plain words, so nothing has to be encrypted to be sent back.
    "include": ([], ["reasoning.encrypted_content"]),
    "max_tool_calls": NOTHING,
    "moderation": NOTHING,
    "prompt": NOTHING,
    "reasoning": ({}, {"effort": "none"}),
    "tool_choice": ("auto", "none"),
    "tools": EMPTY,
    "top_logprobs": (0,),
    "truncation": ("disabled",),
}
METADATA_PAIRS = 16


class StreamOptions(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    include_obfuscation: bool | None = None  # of no use here: nothing is padded


class TextOptions(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    format: dict[str, Any] | None = None
    verbosity: str | None = None  # no model here knows it; the answer says what was asked


class ResponseBody(BaseModel):
    """The JSON of a request. Null is the default everywhere; unknown keys are kept as extras."""

    model_config = ConfigDict(extra="allow", strict=True)

    model: str
    input: Any = None
    instructions: str | None = None
    max_output_tokens: Count | None = None
    metadata: dict[str, str] | None = None
    parallel_tool_calls: bool | None = None
    previous_response_id: str | None = None
    store: bool | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    temperature: float | None = None
    text: TextOptions | None = None
    top_p: float | None = None


@dataclass(frozen=True, slots=True)
class ResponseCall:
    """``history`` are the items of the answers before, ``items`` the request's own."""

    body: ResponseBody
    history: Sequence[Item]
    items: Sequence[Item]
    call: Call


def parse_body(data: Mapping[str, Any]) -> ResponseBody:
    """Raises ``ApiError``."""
    body = validated(ResponseBody, data)
    check_extras(body.model_extra or {}, NEUTRAL, HARMLESS)
    if body.text and body.text.format not in (None, {"type": "text"}):
        raise unsupported("text.format")
    if body.stream_options and not body.stream:
        message = "The 'stream_options' parameter is only allowed when 'stream' is enabled."
        raise invalid(message, "stream_options")
    if len(body.metadata or ()) > METADATA_PAIRS:
        raise invalid(f"At most {METADATA_PAIRS} pairs are allowed in 'metadata'.", "metadata")
    return body


def make_call(body: ResponseBody, history: Sequence[Item], id: str) -> ResponseCall:
    """``history`` from the previous response. Raises ``ApiError`` or ``Invalid``."""
    items = parse_input(body.input)
    messages = to_messages(body.instructions, [*history, *items])
    if not items:
        raise invalid("'input' must hold at least one item.", "input", "empty_array")
    request = GenerateRequest(id=id, prompt=ChatPrompt(messages), sampling=_sampling(body))
    call = Call(body.model, (request,), bool(body.stream), include_usage=False)
    return ResponseCall(body, history, items, call)


def _sampling(body: ResponseBody) -> SamplingParams:
    return SamplingParams(
        max_tokens=body.max_output_tokens,
        temperature=1.0 if body.temperature is None else body.temperature,
        top_p=1.0 if body.top_p is None else body.top_p,
    )
