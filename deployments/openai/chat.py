"""``/v1/chat/completions``: from its JSON to generation requests, from events to its answers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

from pydantic import Field

from deployments.openai import logprobs
from deployments.openai.call import Call, Count, GenerationBody, make_call, validated
from deployments.openai.errors import invalid
from deployments.openai.form import Choice, Chunks, Heading, Shown, Totals
from deployments.openai.messages import parse_messages
from deployments.openai.parameters import CHAT_NEUTRAL, check_extras
from deployments.openai.sse import dumps, quote
from models.events import Finished, Started, Text, TokenLogprob
from models.request import MAX_LOGPROBS, ChatPrompt

OPENING = '"delta":{"role":"assistant","content":"","refusal":null},"logprobs":null,'
OPENING += '"finish_reason":null'
Top = Annotated[int, Field(ge=0, le=MAX_LOGPROBS)]


class ChatBody(GenerationBody):
    messages: list[Any]
    max_completion_tokens: Count | None = None
    logprobs: bool | None = None
    top_logprobs: Top | None = None


def parse(data: Mapping[str, Any], id: str) -> Call:
    """Raises ``ApiError`` or ``Invalid``."""
    body = validated(ChatBody, data)
    check_extras(body.model_extra or {}, CHAT_NEUTRAL)
    prompt = ChatPrompt(parse_messages(body.messages))
    return make_call(body, id, [prompt], _max_tokens(body), logprobs=_logprobs(body))


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

    def whole(self, choices: Sequence[Choice], totals: Totals) -> Mapping[str, Any]:
        return {
            **self._heading.fields("chat.completion"),
            "choices": [self._choice(i, choice) for i, choice in enumerate(choices)],
            "usage": totals.usage(),
            **self._of_prompt(choices[0].started),
        }

    def opening(self, index: int, event: Started, totals: Totals) -> bytes:
        beside = "".join(f",{dumps(key)}:{dumps(v)}" for key, v in self._of_prompt(event).items())
        return self._chunks.choice(index, OPENING, totals, beside)

    def text(self, index: int, event: Text, totals: Totals) -> bytes:
        content = f'"delta":{{"content":{quote(event.delta)}}}'
        fields = f'{content},{self._beside(event)},"finish_reason":null'
        return self._chunks.choice(index, fields, totals)

    def finish(self, index: int, event: Finished, totals: Totals) -> bytes:
        ends = f'"finish_reason":"{event.reason}","stop_reason":{dumps(event.stop)}'
        return self._chunks.choice(index, f'"delta":{{}},{self._beside(event)},{ends}', totals)

    def usage(self, totals: Totals) -> bytes:
        return self._chunks.usage(totals)

    def _choice(self, index: int, choice: Choice) -> dict[str, Any]:
        return {
            "index": index,
            "message": {"role": "assistant", "content": choice.text, "refusal": None},
            "logprobs": self._logprobs(choice.logprobs + self._of_end(choice.end)),
            "finish_reason": choice.end.reason,
            "stop_reason": choice.end.stop,
            **({"token_ids": choice.token_ids} if self._shown.token_ids else {}),
        }

    def _of_prompt(self, event: Started) -> dict[str, Any]:
        """The fields beside the choices."""
        fields: dict[str, Any] = {}
        if self._shown.prompt_logprobs is not None:
            top = self._shown.prompt_logprobs
            fields["prompt_logprobs"] = logprobs.of_prompt(event.logprobs, top)
        if self._shown.token_ids:
            fields["prompt_token_ids"] = event.token_ids
        return fields

    def _beside(self, event: Text | Finished) -> str:
        """The fields of a chunk beside its delta."""
        entries = self._of_end(event) if isinstance(event, Finished) else event.logprobs
        shown = self._logprobs(entries) if entries else None
        ids = f',"token_ids":{dumps(event.token_ids)}' if self._shown.token_ids else ""
        return f'"logprobs":{dumps(shown)}{ids}'

    def _of_end(self, event: Finished) -> tuple[TokenLogprob, ...]:
        return event.logprobs if self._shown.token_ids else ()

    def _logprobs(self, entries: Sequence[TokenLogprob]) -> dict[str, Any] | None:
        top = self._shown.logprobs
        return None if top is None else logprobs.of_chat(entries, top)
