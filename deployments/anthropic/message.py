"""One answer as Anthropic tells it: a message of content blocks, whole and as events."""

from __future__ import annotations

import json
from typing import Any

from deployments.anthropic.errors import error_body, message_error
from deployments.openai.errors import ApiError
from deployments.openai.sse import Told
from models.errors import EngineError
from models.events import Event, Finished, FinishReason, Reasoning, Started, Text, ToolCall, Usage


class MessageTranscript:
    """See ``Transcript``. ``max_tokens`` is what the caller allowed.

    Without ``thoughts`` the blocks of what was thought are empty.
    """

    def __init__(
        self, id: str, model: str, max_tokens: int | None, request_id: str, *, thoughts: bool = True
    ) -> None:
        self._id = id
        self._model = model
        self._max_tokens = max_tokens
        self._request_id = request_id
        self._thoughts = thoughts
        self._blocks: list[dict[str, Any]] = []
        self._pieces: list[str] | None = None  # of the open block, which is the last one
        self._started = Started(0, 0)
        self._end: Finished | None = None

    def tell(self, event: Event) -> list[Told]:
        match event:
            case Started():
                self._started = event
                return [_told("message_start", message=self.whole()), _told("ping")]
            case Text(delta):
                return [*self._go_on("text", text=""), self._add("text_delta", "text", delta)]
            case Reasoning(delta):
                opened = self._go_on("thinking", thinking="", signature="")
                added = [self._add("thinking_delta", "thinking", delta)] if self._thoughts else []
                return [*opened, *added]
            case ToolCall():
                return self._call(event)
            case Finished():
                self._end = event
                return self._close()

    def end(self) -> list[Told]:
        stop = {"stop_reason": self._stop_reason(), "stop_sequence": self._stop_sequence()}
        return [_told("message_delta", delta=stop, usage=self._usage()), _told("message_stop")]

    def fail(self, error: ApiError) -> list[Told]:
        return [("error", error_body(error, self._request_id))]

    def error(self, error: EngineError) -> ApiError:
        return message_error(error)

    def whole(self) -> dict[str, Any]:
        return {
            "id": self._id,
            "type": "message",
            "role": "assistant",
            "model": self._model,
            "content": list(self._blocks),
            "stop_reason": self._stop_reason(),
            "stop_sequence": self._stop_sequence(),
            "usage": self._usage(),
        }

    def _call(self, call: ToolCall) -> list[Told]:
        opened: list[Told] = []
        if call.id is not None:
            opened = self._open("tool_use", id=call.id, name=call.name, input={})
        if not call.arguments:
            return opened
        return [*opened, self._add("input_json_delta", "partial_json", call.arguments)]

    def _go_on(self, kind: str, **fields: Any) -> list[Told]:
        """Opens a block unless one of this kind is open."""
        if self._pieces is not None and self._blocks[-1]["type"] == kind:
            return []
        return self._open(kind, **fields)

    def _open(self, kind: str, **fields: Any) -> list[Told]:
        closed = self._close()
        block = {"type": kind, **fields}
        self._blocks.append(block)
        self._pieces = []
        return [*closed, _told("content_block_start", index=self._index, content_block=dict(block))]

    def _add(self, type: str, field: str, delta: str) -> Told:
        assert self._pieces is not None
        self._pieces.append(delta)
        return _told("content_block_delta", index=self._index, delta={"type": type, field: delta})

    def _close(self) -> list[Told]:
        if self._pieces is None:
            return []
        block, said = self._blocks[-1], "".join(self._pieces)
        self._pieces = None
        if block["type"] == "tool_use":
            block["input"] = _input(said)
        else:
            block[block["type"]] = said
        return [_told("content_block_stop", index=self._index)]

    @property
    def _index(self) -> int:
        return len(self._blocks) - 1

    def _stop_sequence(self) -> str | None:
        stop = None if self._end is None else self._end.stop
        return stop if isinstance(stop, str) else None

    def _stop_reason(self) -> str | None:
        if self._end is None:
            return None
        if self._stop_sequence() is not None:
            return "stop_sequence"
        if self._end.reason is FinishReason.LENGTH:
            room = self._end.usage.completion_tokens == self._max_tokens
            return "max_tokens" if room else "model_context_window_exceeded"
        used = any(block["type"] == "tool_use" for block in self._blocks)
        return "tool_use" if used else "end_turn"

    def _usage(self) -> dict[str, Any]:
        """What came from the prefix cache is not among the input tokens."""
        end = Usage(0, 0) if self._end is None else self._end.usage
        return {
            "input_tokens": self._started.prompt_tokens - self._started.cached_tokens,
            "cache_creation_input_tokens": 0,
            "cache_read_input_tokens": self._started.cached_tokens,
            "output_tokens": end.completion_tokens,
            "output_tokens_details": {"thinking_tokens": end.reasoning_tokens},
        }


def _input(arguments: str) -> Any:
    """An answer that was cut may end inside of them: then there are none to rely on."""
    try:
        value = json.loads(arguments or "{}")
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def _told(type: str, **fields: Any) -> Told:
    return type, {"type": type, **fields}
