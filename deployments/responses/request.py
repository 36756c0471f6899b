"""``/v1/responses``: from its JSON to a generation request."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict

from deployments.openai.call import Call, Count, known_as, user_of, validated
from deployments.openai.chat import Effort, Top, Verbosity, manner
from deployments.openai.errors import invalid
from deployments.openai.form import Shown
from deployments.openai.parameters import EMPTY, NOTHING, check_extras
from deployments.openai.structured import response_format
from deployments.responses.items import Item, parse_input, to_messages
from deployments.responses.shorten import without_oldest
from deployments.responses.tools import parse_tools
from models.errors import TooLong
from models.request import ChatPrompt, GenerateRequest, Grammar, SamplingParams

# Nothing in the answer depends on these.
HARMLESS = frozenset(
    {
        "client_metadata",
        "prompt_cache_options",
        "prompt_cache_retention",
        "rid",
        "safety_identifier",
        "service_tier",
        "session_id",
        "user",
    }
)

# The values that ask for what is done anyway, of parameters that are not supported.
NEUTRAL: Mapping[str, Collection[Any]] = {
    "background": (False,),
    "context_management": EMPTY,
    "conversation": NOTHING,
    "moderation": NOTHING,
    "prompt": NOTHING,
}
METADATA_PAIRS = 16
Summary = Literal["auto", "concise", "detailed"]
LOGPROBS = "message.output_text.logprobs"
# What is thought is told in plain words, so nothing has to be encrypted to be sent back. The others
# are of items that no answer here has.
Include = Literal[
    "message.output_text.logprobs",
    "reasoning.encrypted_content",
    "code_interpreter_call.outputs",
    "computer_call_output.output.image_url",
    "file_search_call.results",
    "message.input_image.image_url",
    "web_search_call.action.sources",
    "web_search_call.results",
]


class StreamOptions(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    include_obfuscation: bool | None = None  # of no use here: nothing is padded
    include_usage: Literal[True] | None = None  # the last event has it anyway


class ReasoningOptions(BaseModel):
    """What is thought is told in full, whatever summary of it would do."""

    model_config = ConfigDict(extra="forbid", strict=True)

    effort: Effort | None = None
    summary: Summary | None = None
    generate_summary: Summary | None = None
    context: Literal["auto"] | None = None


class TextOptions(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    format: dict[str, Any] | None = None
    verbosity: Verbosity | None = None


class ResponseBody(BaseModel):
    """The JSON of a request. Null is the default everywhere; unknown keys are kept as extras."""

    model_config = ConfigDict(extra="allow", strict=True)

    model: str
    input: Any = None
    instructions: str | None = None
    max_output_tokens: Count | None = None
    include: list[Include] | None = None
    max_tool_calls: Count | None = None  # of tools of the server, which has none
    metadata: dict[str, str] | None = None
    parallel_tool_calls: bool | None = None
    reasoning: ReasoningOptions | None = None
    previous_response_id: str | None = None
    prompt_cache_key: str | None = known_as("prompt_cache_key", "session_id")
    store: bool | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    temperature: float | None = None
    text: TextOptions | None = None
    tool_choice: Any = None
    tools: list[Any] | None = None
    top_logprobs: Top | None = None
    top_p: float | None = None
    truncation: Literal["auto", "disabled"] | None = None
    request_id: str | None = known_as("request_id", "rid")


@dataclass(frozen=True, slots=True)
class ResponseCall:
    """``history`` are the items of the answers before, ``items`` the request's own.

    ``seen`` are those of both that the model is given.
    """

    body: ResponseBody
    history: Sequence[Item]
    items: Sequence[Item]
    seen: Sequence[Item]
    call: Call

    @property
    def reasoning(self) -> dict[str, Any]:
        """As the answer tells it."""
        options = self.body.reasoning or ReasoningOptions()
        return {"effort": options.effort, "summary": options.summary}


def parse_body(data: Mapping[str, Any]) -> ResponseBody:
    """Raises ``ApiError``."""
    body = validated(ResponseBody, data)
    check_extras(body.model_extra or {}, NEUTRAL, HARMLESS)
    if body.stream_options and not body.stream:
        message = "The 'stream_options' parameter is only allowed when 'stream' is enabled."
        raise invalid(message, "stream_options")
    if len(body.metadata or ()) > METADATA_PAIRS:
        raise invalid(f"At most {METADATA_PAIRS} pairs are allowed in 'metadata'.", "metadata")
    return body


def make_call(body: ResponseBody, history: Sequence[Item], id: str) -> ResponseCall:
    """``history`` from the previous response. Raises ``ApiError`` or ``Invalid``."""
    items = parse_input(body.input)
    if not items:
        raise invalid("'input' must hold at least one item.", "input", "empty_array")
    seen = [*history, *items]
    return ResponseCall(body, history, items, seen, _call(body, seen, id))


def shortened(made: ResponseCall, error: TooLong) -> ResponseCall | None:
    """The same with fewer of the oldest items; None if the model must see those that are left."""
    body, request = made.body, made.call.requests[0]
    room = min(body.max_output_tokens or error.max_context // 8, error.max_context // 2)
    seen = without_oldest(made.seen, 1 - (error.max_context - room) / error.prompt_tokens)
    if body.truncation != "auto" or seen is None:
        return None
    return replace(made, seen=seen, call=_call(body, seen, request.id))


def _call(body: ResponseBody, seen: Sequence[Item], id: str) -> Call:
    messages = to_messages(body.instructions, seen)
    offer = parse_tools(body.tools, body.tool_choice, body.parallel_tool_calls)
    prompt = ChatPrompt(messages, tools=offer.tools, template_kwargs=_manner(body))
    request = GenerateRequest(
        id=id,
        prompt=prompt,
        sampling=_sampling(body),
        grammar=_grammar(body),
        tool_choice=offer.choice,
        user=user_of(body.model_extra or {}),
        cache_key=body.prompt_cache_key,
    )
    return Call(body.model, (request,), bool(body.stream), Shown(), name=body.request_id)


def _manner(body: ResponseBody) -> dict[str, Any]:
    effort = body.reasoning.effort if body.reasoning else None
    return manner(effort, body.text.verbosity if body.text else None)


def _grammar(body: ResponseBody) -> Grammar | None:
    if body.text is None or body.text.format is None:
        return None
    return response_format(body.text.format, "text.format")


def _sampling(body: ResponseBody) -> SamplingParams:
    return SamplingParams(
        max_tokens=body.max_output_tokens,
        temperature=1.0 if body.temperature is None else body.temperature,
        top_p=1.0 if body.top_p is None else body.top_p,
        logprobs=_logprobs(body),
    )


def _logprobs(body: ResponseBody) -> int | None:
    if body.top_logprobs or LOGPROBS in (body.include or ()):
        return body.top_logprobs or 0
    return None
