"""``/v1/messages``: from its JSON to a generation request."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from pydantic import BaseModel, ConfigDict

from deployments.anthropic.errors import NO_THREADS
from deployments.anthropic.tools import (
    parse_grammar,
    parse_tools,
    template_kwargs,
    thinking_budget,
)
from deployments.anthropic.turns import parse_system, parse_turns
from deployments.openai.call import Call, Count, Integer, validated
from deployments.openai.errors import invalid
from deployments.openai.form import Shown
from deployments.openai.parameters import EMPTY, NOTHING, check_extras
from deployments.openai.tools import Offer
from deployments.openai.users import named_by
from models.request import ChatPrompt, GenerateRequest, SamplingParams, User

# Nothing in the answer depends on these.
HARMLESS = frozenset(
    {"cache_control", "metadata", "service_tier", "user_profile_id", "workspace_id"}
)

KEEP_THINKING = {"type": "clear_thinking_20251015", "keep": "all"}
# The values that ask for what is done anyway, of parameters that are not supported.
NEUTRAL: Mapping[str, Collection[Any]] = {
    "container": NOTHING,
    "context_management": ({"edits": []}, {"edits": [KEEP_THINKING]}),
    "diagnostics": NOTHING,
    "inference_geo": NOTHING,
    "mcp_servers": EMPTY,
    "output_format": NOTHING,
    "speed": ("standard",),
    "thread": NOTHING,
}
UNTHREADED = "Conversations are not held here: send all of it each time, without 'thread'."


class PromptBody(BaseModel):
    """What is counted. Null is the default everywhere; unknown keys are kept as extras."""

    model_config = ConfigDict(extra="allow", strict=True)

    model: str
    messages: list[Any]
    system: Any = None
    thinking: Any = None
    tools: Any = None
    tool_choice: Any = None
    output_config: Any = None


class MessagesBody(PromptBody):
    max_tokens: Count
    stream: bool | None = None
    stop_sequences: list[str] | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_k: Integer | None = None


def parse_messages(data: Mapping[str, Any], id: str) -> Call:
    """Raises ``ApiError`` or ``Invalid``."""
    body = validated(MessagesBody, data)
    offer = parse_tools(body.tools, body.tool_choice)
    request = GenerateRequest(
        id=id,
        prompt=_prompt(body, offer),
        sampling=_sampling(body),
        stop=tuple(body.stop_sequences or ()),
        grammar=parse_grammar(body.output_config),
        tool_choice=offer.choice,
        thinking_budget=thinking_budget(body.thinking),
        user=_user((body.model_extra or {}).get("metadata")),
    )
    return Call(body.model, (request,), bool(body.stream), Shown())


def parse_count(data: Mapping[str, Any]) -> tuple[str, ChatPrompt]:
    """The model and what is to be counted. Raises ``ApiError`` or ``Invalid``."""
    body = validated(PromptBody, data)
    return body.model, _prompt(body, parse_tools(body.tools, body.tool_choice))


def _prompt(body: PromptBody, offer: Offer) -> ChatPrompt:
    """A conversation that ends with the assistant's words goes on with them."""
    extras = body.model_extra or {}
    if extras.get("thread") is not None:
        raise invalid(UNTHREADED, "thread", NO_THREADS)
    check_extras(extras, NEUTRAL, HARMLESS)
    messages = (*parse_system(body.system), *parse_turns(body.messages))
    prefilled = bool(messages) and messages[-1]["role"] == "assistant"
    return ChatPrompt(
        messages,
        tools=offer.tools,
        template_kwargs=template_kwargs(body.thinking, body.output_config),
        add_generation_prompt=not prefilled,
        continue_final_message=prefilled,
    )


def _user(metadata: Any) -> User:
    return named_by(metadata.get("user_id") if isinstance(metadata, dict) else None)


def _sampling(body: MessagesBody) -> SamplingParams:
    return SamplingParams(
        max_tokens=body.max_tokens,
        temperature=1.0 if body.temperature is None else body.temperature,
        top_p=1.0 if body.top_p is None else body.top_p,
        top_k=body.top_k or 0,
    )
