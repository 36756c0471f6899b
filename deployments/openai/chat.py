"""``/v1/chat/completions``: from its JSON to generation requests, from events to its answers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Annotated, Any, Literal

from pydantic import Field

from deployments.openai import logprobs
from deployments.openai.call import Call, Count, GenerationBody, make_call, validated
from deployments.openai.errors import invalid
from deployments.openai.form import NO_LOGPROBS, Choice, Chunks, Heading, Shown, Totals
from deployments.openai.messages import parse_messages
from deployments.openai.parameters import CHAT_NEUTRAL, check_extras
from deployments.openai.sse import dumps, quote
from deployments.openai.structured import take_grammar
from deployments.openai.tools import Offer, parse_offer
from models.events import Finished, Part, Reasoning, Started, Text, TokenLogprob, ToolCall
from models.request import MAX_LOGPROBS, ChatPrompt

OPENING = '"delta":{"role":"assistant","content":"","refusal":null},"logprobs":null,'
OPENING += '"finish_reason":null'
# What the template is given otherwise.
RESERVED = ("messages", "tools", "documents", "add_generation_prompt", "continue_final_message")
Effort = Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"]
Verbosity = Literal["low", "medium", "high"]
Top = Annotated[int, Field(ge=0, le=MAX_LOGPROBS)]


class ChatBody(GenerationBody):
    messages: list[Any]
    max_completion_tokens: Count | None = None
    tools: Any = None
    tool_choice: Any = None
    parallel_tool_calls: bool | None = None
    reasoning_effort: Effort | None = None
    verbosity: Verbosity | None = None
    enable_thinking: bool | None = None
    chat_template_kwargs: dict[str, Any] | None = None
    documents: list[dict[str, Any]] | None = None
    add_generation_prompt: bool | None = None
    continue_final_message: bool | None = None
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
    requests = (replace(request, tool_choice=offer.choice) for request in call.requests)
    return replace(call, requests=tuple(requests))


def _prompt(body: ChatBody, offer: Offer) -> ChatPrompt:
    return ChatPrompt(
        parse_messages(body.messages),
        tools=offer.tools,
        documents=tuple(body.documents or ()),
        template_kwargs=_template_kwargs(body),
        add_generation_prompt=body.add_generation_prompt is not False,
        continue_final_message=bool(body.continue_final_message),
    )


def _template_kwargs(body: ChatBody) -> dict[str, Any]:
    """Templates know ``reasoning_effort`` by its name, or only as thinking or not."""
    given = body.chat_template_kwargs or {}
    for name in given:
        if name in RESERVED:
            param = f"chat_template_kwargs.{name}"
            raise invalid(f"'{name}' is a parameter of its own.", param, "invalid_value")
    wishes = manner(body.reasoning_effort, body.verbosity)
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


class ChatForm:
    """Writes ``chat.completion`` and ``chat.completion.chunk``.

    Logprobs are of the tokens that make the content, as OpenAI has it; where token ids are shown
    too, there is one for each of those, the end of the sequence and of a stop included.
    """

    prompt_param = "messages"

    def __init__(self, heading: Heading, shown: Shown) -> None:
        self._heading = heading
        self._shown = shown
        self._chunks = Chunks(heading, "chat.completion.chunk", shown)
        self._plain = shown.logprobs is None and not shown.token_ids

    def whole(self, choices: Sequence[Choice], totals: Totals) -> Mapping[str, Any]:
        return {
            **self._heading.fields("chat.completion"),
            "choices": [self._choice(i, choice) for i, choice in enumerate(choices)],
            "usage": totals.usage(),
            **self._shown.of_prompt(choices[0].started),
        }

    def opening(self, index: int, event: Started, totals: Totals) -> bytes:
        beside = "".join(
            f",{dumps(key)}:{dumps(v)}" for key, v in self._shown.of_prompt(event).items()
        )
        return self._chunks.choice(index, OPENING, totals, beside)

    def text(self, index: int, event: Text, totals: Totals) -> bytes:
        return self._delta(index, f'"content":{quote(event.delta)}', event, totals)

    def reasoning(self, index: int, event: Reasoning, totals: Totals) -> bytes:
        text = quote(event.delta)
        delta = f'"reasoning_content":{text},"reasoning":{text}'
        return self._delta(index, delta, event, totals)

    def tool_call(self, index: int, event: ToolCall, totals: Totals) -> bytes:
        call = {"index": event.index, **_call(event)}
        return self._delta(index, f'"tool_calls":[{dumps(call)}]', event, totals)

    def finish(self, index: int, event: Finished, totals: Totals) -> bytes:
        ends = f'"finish_reason":"{event.reason}","stop_reason":{dumps(event.stop)}'
        return self._chunks.choice(index, f'"delta":{{}},{self._beside(event)},{ends}', totals)

    def usage(self, totals: Totals) -> bytes:
        return self._chunks.usage(totals)

    def _delta(self, index: int, delta: str, event: Part, totals: Totals) -> bytes:
        fields = f'"delta":{{{delta}}},{self._beside(event)},"finish_reason":null'
        return self._chunks.choice(index, fields, totals)

    def _choice(self, index: int, choice: Choice) -> dict[str, Any]:
        return {
            "index": index,
            "message": _message(choice),
            "logprobs": self._logprobs(choice.logprobs + self._of_end(choice.end)),
            "finish_reason": choice.end.reason,
            "stop_reason": choice.end.stop,
            **({"token_ids": choice.token_ids} if self._shown.token_ids else {}),
        }

    def _beside(self, event: Part | Finished) -> str:
        """The fields of a chunk beside its delta."""
        if self._plain:
            return NO_LOGPROBS
        entries = self._of_end(event) if isinstance(event, Finished) else event.logprobs
        shown = self._logprobs(entries) if entries else None
        ids = f',"token_ids":{dumps(event.token_ids)}' if self._shown.token_ids else ""
        return f'"logprobs":{dumps(shown)}{ids}'

    def _of_end(self, event: Finished) -> tuple[TokenLogprob, ...]:
        return event.logprobs if self._shown.token_ids else ()

    def _logprobs(self, entries: Sequence[TokenLogprob]) -> dict[str, Any] | None:
        top = self._shown.logprobs
        return None if top is None else logprobs.of_chat(entries, top)


def _message(choice: Choice) -> dict[str, Any]:
    """Content is null where something else was said instead."""
    calls, reasoning = [_call(call) for call in choice.calls], choice.reasoning
    content = choice.text or (None if calls or reasoning else "")
    message = {"role": "assistant", "content": content, "refusal": None}
    if reasoning:
        message |= {"reasoning_content": reasoning, "reasoning": reasoning}
    return message | ({"tool_calls": calls} if calls else {})


def _call(call: ToolCall) -> dict[str, Any]:
    """A call, or more of its arguments."""
    if call.id is None:
        return {"function": {"arguments": call.arguments}}
    function = {"name": call.name, "arguments": call.arguments}
    return {"id": call.id, "type": "function", "function": function}
