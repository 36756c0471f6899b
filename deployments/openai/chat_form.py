"""The answers of ``/v1/chat/completions``, from the events of a generation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from deployments.openai import logprobs
from deployments.openai.form import NO_LOGPROBS, Choice, Chunks, Heading, Shown, Totals
from deployments.openai.sse import dumps, quote
from models.events import Finished, Part, Reasoning, Started, Text, TokenLogprob, ToolCall

OPENING = '"delta":{"role":"assistant","content":"","refusal":null},"logprobs":null,'
OPENING += '"finish_reason":null'


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
        beside = self._shown.written_of_prompt(event)
        said = quote(self._shown.said)
        return self._chunks.choice(index, OPENING.replace('""', said, 1), totals, beside)

    def text(self, index: int, event: Text, totals: Totals) -> bytes:
        return self._delta(index, f'"content":{quote(event.delta)}', event, totals)

    def reasoning(self, index: int, event: Reasoning, totals: Totals) -> bytes:
        if not self._shown.reasoning:
            return b""
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
        if not self._shown.reasoning:
            parts = [part for part in choice.parts if not isinstance(part, Reasoning)]
            choice = replace(choice, parts=parts)
        return {
            "index": index,
            "message": _message(choice, self._shown.said),
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
        return (
            None if top is None else logprobs.of_chat(entries, top, ids=self._shown.tokens_as_ids)
        )


def _message(choice: Choice, said: str) -> dict[str, Any]:
    """Content is null where something else was said instead."""
    calls, reasoning = [_call(call) for call in choice.calls], choice.reasoning
    content = said + choice.text or (None if calls or reasoning else "")
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
