"""One answer as Anthropic tells it: a message of content blocks, whole and as events."""

from __future__ import annotations

from typing import Any

from deployments.anthropic.errors import error_body, message_error
from deployments.openai.errors import ApiError
from models.errors import EngineError
from models.events import Event, Finished, FinishReason, Started, Text

Told = tuple[str, dict[str, Any]]  # an event's name and its data


class MessageTranscript:
    """See ``Transcript``. ``max_tokens`` is what the caller allowed."""

    def __init__(self, id: str, model: str, max_tokens: int | None, request_id: str) -> None:
        self._id = id
        self._model = model
        self._max_tokens = max_tokens
        self._request_id = request_id
        self._blocks: list[dict[str, Any]] = []
        self._pieces: list[str] = []  # of the open block, which is the last one
        self._started = Started(0, 0)
        self._end: Finished | None = None

    def tell(self, event: Event) -> list[Told]:
        match event:
            case Started():
                self._started = event
                return [_told("message_start", message=self.whole()), _told("ping")]
            case Text(delta):
                return [*self._open("text", text=""), self._add("text", delta)]
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

    def _open(self, kind: str, **fields: Any) -> list[Told]:
        """Starts a block unless one of this kind goes on."""
        if self._pieces and self._blocks[-1]["type"] == kind:
            return []
        closed = self._close()
        block = {"type": kind, **fields}
        self._blocks.append(block)
        return [*closed, _told("content_block_start", index=self._index, content_block=dict(block))]

    def _add(self, field: str, delta: str) -> Told:
        self._pieces.append(delta)
        change = {"type": f"{field}_delta", field: delta}
        return _told("content_block_delta", index=self._index, delta=change)

    def _close(self) -> list[Told]:
        if not self._pieces:
            return []
        block = self._blocks[-1]
        block[block["type"]] = "".join(self._pieces)
        self._pieces = []
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
        if self._end.reason is not FinishReason.LENGTH:
            return "end_turn"
        room = self._end.usage.completion_tokens == self._max_tokens
        return "max_tokens" if room else "model_context_window_exceeded"

    def _usage(self) -> dict[str, Any]:
        """What came from the prefix cache is not among the input tokens."""
        return {
            "input_tokens": self._started.prompt_tokens - self._started.cached_tokens,
            "cache_creation_input_tokens": 0,
            "cache_read_input_tokens": self._started.cached_tokens,
            "output_tokens": 0 if self._end is None else self._end.usage.completion_tokens,
        }


def _told(type: str, **fields: Any) -> Told:
    return type, {"type": type, **fields}
