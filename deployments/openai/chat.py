"""``/v1/chat/completions``: from its JSON to generation requests, from events to its answers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from deployments.openai.call import Call, Count, GenerationBody, make_call, validated
from deployments.openai.errors import invalid
from deployments.openai.form import Chunks, Heading, Totals
from deployments.openai.messages import parse_messages
from deployments.openai.parameters import CHAT_NEUTRAL, check_extras
from deployments.openai.sse import dumps, quote
from deployments.openai.structured import take_grammar
from models.events import Finished
from models.request import ChatPrompt

OPENING = '"delta":{"role":"assistant","content":"","refusal":null},"logprobs":null,'
OPENING += '"finish_reason":null'


class ChatBody(GenerationBody):
    messages: list[Any]
    max_completion_tokens: Count | None = None


def parse(data: Mapping[str, Any], id: str) -> Call:
    """Raises ``ApiError`` or ``Invalid``."""
    body = validated(ChatBody, data)
    extras = dict(body.model_extra or {})
    grammar = take_grammar(extras)
    check_extras(extras, CHAT_NEUTRAL)
    prompt = ChatPrompt(parse_messages(body.messages))
    return make_call(body, id, [prompt], _max_tokens(body), grammar)


def _max_tokens(body: ChatBody) -> int | None:
    old, new = body.max_tokens, body.max_completion_tokens
    if old is not None and new is not None and old != new:
        message = "Setting 'max_tokens' and 'max_completion_tokens' differently is not supported."
        raise invalid(message, "max_tokens", "invalid_parameter_combination")
    return old if new is None else new


class ChatForm:
    """Writes ``chat.completion`` and ``chat.completion.chunk``."""

    prompt_param = "messages"

    def __init__(self, heading: Heading, include_usage: bool) -> None:
        self._heading = heading
        self._chunks = Chunks(heading, "chat.completion.chunk", include_usage)

    def whole(self, choices: Sequence[tuple[str, Finished]], totals: Totals) -> Mapping[str, Any]:
        return {
            **self._heading.fields("chat.completion"),
            "choices": [_choice(i, text, end) for i, (text, end) in enumerate(choices)],
            "usage": totals.usage(),
        }

    def opening(self, index: int) -> bytes:
        return self._chunks.choice(index, OPENING)

    def text(self, index: int, delta: str) -> bytes:
        fields = f'"delta":{{"content":{quote(delta)}}},"logprobs":null,"finish_reason":null'
        return self._chunks.choice(index, fields)

    def finish(self, index: int, event: Finished) -> bytes:
        ends = f'"finish_reason":"{event.reason}","stop_reason":{dumps(event.stop)}'
        return self._chunks.choice(index, f'"delta":{{}},"logprobs":null,{ends}')

    def usage(self, totals: Totals) -> bytes:
        return self._chunks.usage(totals)


def _choice(index: int, text: str, end: Finished) -> dict[str, Any]:
    return {
        "index": index,
        "message": {"role": "assistant", "content": text, "refusal": None},
        "logprobs": None,
        "finish_reason": end.reason,
        "stop_reason": end.stop,
    }
