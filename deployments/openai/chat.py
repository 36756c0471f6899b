"""``/v1/chat/completions``: from its JSON to generation requests."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from deployments.openai.call import Call, Count, GenerationBody, Integer, make_call, validated
from deployments.openai.errors import invalid
from deployments.openai.messages import parse_messages
from deployments.openai.parameters import CHAT_NEUTRAL, check_extras
from deployments.openai.structured import take_grammar
from deployments.openai.tools import Offer, parse_offer
from models.request import MAX_LOGPROBS, ChatPrompt

# What the template is given otherwise.
RESERVED = ("messages", "tools", "documents", "add_generation_prompt", "continue_final_message")
Effort = Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"]
Verbosity = Literal["low", "medium", "high"]
Top = Annotated[int, Field(ge=0, le=MAX_LOGPROBS)]


class Thinking(BaseModel):
    """As callers of DeepSeek and GLM say whether to reason."""

    model_config = ConfigDict(extra="forbid", strict=True)

    type: Literal["enabled", "disabled"]


class ChatBody(GenerationBody):
    messages: list[Any]
    max_completion_tokens: Count | None = None
    tools: Any = None
    tool_choice: Any = None
    parallel_tool_calls: bool | None = None
    reasoning_effort: Effort | None = None
    thinking_token_budget: Integer | None = None
    verbosity: Verbosity | None = None
    enable_thinking: bool | None = None
    thinking: Thinking | None = None
    chat_template_kwargs: dict[str, Any] | None = None
    documents: list[dict[str, Any]] | None = None
    add_generation_prompt: bool | None = None
    continue_final_message: bool | None = None
    add_special_tokens: bool | None = None
    echo: bool | None = None
    include_reasoning: bool | None = None
    logprobs: bool | None = None
    top_logprobs: Top | None = None


def parse(data: Mapping[str, Any], id: str) -> Call:
    """Raises ``ApiError`` or ``Invalid``."""
    body = validated(ChatBody, data)
    extras = dict(body.model_extra or {})
    grammar = take_grammar(extras)
    check_extras(extras, CHAT_NEUTRAL)
    offer = parse_offer(body.tools, body.tool_choice, body.parallel_tool_calls)
    prompt, limit = _prompt(body, offer), _max_tokens(body)
    call = make_call(body, id, [prompt], limit, grammar=grammar, logprobs=_logprobs(body))
    requests = (
        replace(request, tool_choice=offer.choice, thinking_budget=body.thinking_token_budget)
        for request in call.requests
    )
    said = _said(prompt) if body.echo else ""
    shown = replace(call.shown, said=said, reasoning=body.include_reasoning is not False)
    return replace(call, requests=tuple(requests), shown=shown)


def _said(prompt: ChatPrompt) -> str:
    """What the assistant has said of the answer by itself."""
    last = prompt.messages[-1]
    return str(last["content"]) if last["role"] == "assistant" else ""


def _prompt(body: ChatBody, offer: Offer) -> ChatPrompt:
    return ChatPrompt(
        parse_messages(body.messages),
        tools=offer.tools,
        documents=tuple(body.documents or ()),
        template_kwargs=_template_kwargs(body),
        add_generation_prompt=body.add_generation_prompt is not False,
        continue_final_message=bool(body.continue_final_message),
        special_tokens=bool(body.add_special_tokens),
    )


def _template_kwargs(body: ChatBody) -> dict[str, Any]:
    """Templates know ``reasoning_effort`` by its name, or only as thinking or not."""
    given = body.chat_template_kwargs or {}
    for name in given:
        if name in RESERVED:
            param = f"chat_template_kwargs.{name}"
            raise invalid(f"'{name}' is a parameter of its own.", param, "invalid_value")
    wishes = manner(body.reasoning_effort, body.verbosity)
    if body.thinking is not None:
        wishes["enable_thinking"] = body.thinking.type == "enabled"
    if body.enable_thinking is not None:
        wishes["enable_thinking"] = body.enable_thinking
    return {**wishes, **given}


def manner(effort: Effort | None, verbosity: Verbosity | None) -> dict[str, Any]:
    """How to answer, as variables of a template."""
    thinks = None if effort is None else effort != "none"
    wishes = {"reasoning_effort": effort, "enable_thinking": thinks, "verbosity": verbosity}
    return {name: wish for name, wish in wishes.items() if wish is not None}


def _max_tokens(body: ChatBody) -> int | None:
    old, new = body.max_tokens, body.max_completion_tokens
    if old is not None and new is not None and old != new:
        message = "Setting 'max_tokens' and 'max_completion_tokens' differently is not supported."
        raise invalid(message, "max_tokens", "invalid_parameter_combination")
    return old if new is None else new


def _logprobs(body: ChatBody) -> int | None:
    if body.logprobs:
        return body.top_logprobs or 0
    if body.top_logprobs:
        message = "'logprobs' must be true where 'top_logprobs' is used."
        raise invalid(message, "top_logprobs", "invalid_parameter_combination")
    return None
