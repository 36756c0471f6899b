"""One answer as OpenAI's Responses tell it: a response of items, whole and as events."""

from __future__ import annotations

import itertools
import time
from typing import Any

from deployments.openai.errors import ApiError, engine_error
from deployments.responses.items import text_part
from deployments.responses.request import ResponseBody
from models.errors import EngineError
from models.events import Event, Finished, FinishReason, Started, Text

Told = tuple[str, dict[str, Any]]  # an event's name and its data
# The schema's own codes for what went wrong; all others are the server's errors.
CODES = {400: "invalid_prompt", 429: "rate_limit_exceeded", 503: "rate_limit_exceeded"}


class ResponseTranscript:
    """See ``Transcript``. ``kept`` tells whether the answer may be asked for again."""

    def __init__(self, unique: str, body: ResponseBody, kept: bool) -> None:
        self.id = f"resp_{unique}"
        self.kept = kept
        self._unique = unique
        self._body = body
        self._created = int(time.time())
        self._numbers = itertools.count()
        self._output: list[dict[str, Any]] = []
        self._pieces: list[str] | None = None  # of the open message, which is the last item
        self._end: Finished | None = None
        self._error: dict[str, Any] | None = None

    def tell(self, event: Event) -> list[Told]:
        match event:
            case Started():
                return [self._state("created"), self._state("in_progress")]
            case Text(delta):
                return [*self._open_message(), self._delta(delta)]
            case Finished():
                self._end = event
                return [*self._open_message(), *self._close_message()]

    def end(self) -> list[Told]:
        return [self._state(self._status)]

    def fail(self, error: ApiError) -> list[Told]:
        code = CODES.get(error.status, "server_error")
        self._error = {"code": code, "message": error.message}
        return [self._state("failed")]

    def error(self, error: EngineError) -> ApiError:
        return engine_error(error, "input")

    def whole(self) -> dict[str, Any]:
        return {**self._heading(), **self._echo(), **self._usage()}

    def _open_message(self) -> list[Told]:
        if self._pieces is not None:
            return []
        self._pieces = []
        id = f"msg_{self._unique}{len(self._output) or ''}"
        item = {"id": id, "type": "message", "status": "in_progress", "role": "assistant"}
        self._output.append({**item, "content": []})
        added = self._tell("output_item.added", **self._at_item, item={**item, "content": []})
        return [added, self._tell("content_part.added", **self._at_part, part=text_part("", True))]

    def _delta(self, delta: str) -> Told:
        assert self._pieces is not None
        self._pieces.append(delta)
        return self._tell("output_text.delta", **self._at_part, delta=delta, logprobs=[])

    def _close_message(self) -> list[Told]:
        text = "".join(self._pieces or ())
        self._pieces = None
        item, part = self._output[-1], text_part(text, True)
        item |= {"content": [part], "status": self._status}
        return [
            self._tell("output_text.done", **self._at_part, text=text, logprobs=[]),
            self._tell("content_part.done", **self._at_part, part=part),
            self._tell("output_item.done", **self._at_item, item=dict(item)),
        ]

    @property
    def _at_item(self) -> dict[str, Any]:
        return {"output_index": len(self._output) - 1}

    @property
    def _at_part(self) -> dict[str, Any]:
        return {"item_id": self._output[-1]["id"], **self._at_item, "content_index": 0}

    @property
    def _status(self) -> str:
        if self._error is not None:
            return "failed"
        if self._end is None:
            return "in_progress"
        return "incomplete" if self._end.reason is FinishReason.LENGTH else "completed"

    def _state(self, name: str) -> Told:
        return self._tell(name, response=self.whole())

    def _tell(self, name: str, **fields: Any) -> Told:
        type = f"response.{name}"
        return type, {"type": type, "sequence_number": next(self._numbers), **fields}

    def _heading(self) -> dict[str, Any]:
        incomplete = self._status == "incomplete"
        return {
            "id": self.id,
            "object": "response",
            "created_at": self._created,
            "completed_at": int(time.time()) if self._status == "completed" else None,
            "status": self._status,
            "error": self._error,
            "incomplete_details": {"reason": "max_output_tokens"} if incomplete else None,
            "model": self._body.model,
            "output": [dict(item) for item in self._output],
        }

    def _echo(self) -> dict[str, Any]:
        """What the caller asked for, or the defaults."""
        body = self._body
        text = body.text.model_dump(exclude_none=True) if body.text else {}
        return {
            "background": False,
            "instructions": body.instructions,
            "max_output_tokens": body.max_output_tokens,
            "max_tool_calls": None,
            "metadata": body.metadata or {},
            "parallel_tool_calls": body.parallel_tool_calls is not False,
            "previous_response_id": body.previous_response_id,
            "reasoning": {"effort": None, "summary": None},
            "service_tier": "default",
            "store": self.kept,
            "temperature": 1.0 if body.temperature is None else body.temperature,
            "text": {"format": {"type": "text"}, **text},
            "tool_choice": "auto",
            "tools": [],
            "top_logprobs": 0,
            "top_p": 1.0 if body.top_p is None else body.top_p,
            "truncation": "disabled",
        }

    def _usage(self) -> dict[str, Any]:
        """Absent until it is known: OpenAI's schema allows no null."""
        if self._end is None:
            return {}
        usage = self._end.usage
        counts = {
            "input_tokens": usage.prompt_tokens,
            "input_tokens_details": {"cached_tokens": usage.cached_tokens, "cache_write_tokens": 0},
            "output_tokens": usage.completion_tokens,
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": usage.prompt_tokens + usage.completion_tokens,
        }
        return {"usage": counts}
