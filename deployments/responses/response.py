"""One answer as OpenAI's Responses tell it: a response of items, whole and as events."""

from __future__ import annotations

import itertools
import time
from collections.abc import Sequence
from typing import Any

from deployments.openai.errors import ApiError, engine_error
from deployments.openai.logprobs import of_response
from deployments.openai.sse import Told
from deployments.responses.items import Item
from deployments.responses.namespaces import is_namespace, split_names
from deployments.responses.output import Call, Growing, Message, Thought
from deployments.responses.request import ResponseCall
from models.errors import EngineError
from models.events import (
    Event,
    Finished,
    FinishReason,
    Reasoning,
    Started,
    Text,
    TokenLogprob,
    ToolCall,
)

# The schema's own codes for what went wrong; all others are the server's errors.
CODES = {400: "invalid_prompt", 429: "rate_limit_exceeded", 503: "rate_limit_exceeded"}


class ResponseTranscript:
    """See ``Transcript``. ``kept`` tells whether the answer may be asked for again."""

    def __init__(self, unique: str, made: ResponseCall, kept: bool) -> None:
        self.id = f"resp_{unique}"
        self.kept = kept
        self._unique = unique
        self._body = made.body
        self._reasoning = made.reasoning
        self._spaces = split_names(made.body.tools)
        self._created = int(time.time())
        self._numbers = itertools.count()
        self._output: list[Item] = []
        self._open: Growing | None = None  # its item is the last one
        self._end: Finished | None = None
        self._error: dict[str, Any] | None = None

    def tell(self, event: Event) -> list[Told]:
        match event:
            case Started():
                return [self._state("created"), self._state("in_progress")]
            case Text(delta, logprobs=logprobs):
                return [*self._go_on(Message, "msg_"), self._more(delta, logprobs)]
            case Reasoning(delta):
                return [*self._go_on(Thought, "rs_"), self._more(delta)]
            case ToolCall():
                return self._call(event)
            case Finished():
                self._end = event
                opened = [] if self._output else self._go_on(Message, "msg_")
                return [*opened, *self._close()]

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

    def _go_on(self, kind: type[Message] | type[Thought], prefix: str) -> list[Told]:
        """Opens an item unless one of this kind is open."""
        return [] if isinstance(self._open, kind) else self._begin(kind(self._id(prefix)))

    def _call(self, call: ToolCall) -> list[Told]:
        begins = call.id is not None
        opened = self._begin(Call(self._id("fc_"), call, self._spaces)) if begins else []
        return [*opened, self._more(call.arguments)] if call.arguments else opened

    def _begin(self, growing: Growing) -> list[Told]:
        closed = self._close()
        self._open = growing
        self._output.append(growing.item)
        growing.item["status"] = "in_progress"
        added = self._at("output_item.added", {"item": dict(growing.item)}, item_id=False)
        return [*closed, added, *(self._at(*said) for said in growing.opening())]

    def _more(self, delta: str, tokens: Sequence[TokenLogprob] = ()) -> Told:
        assert self._open is not None
        return self._at(*self._open.more(delta, of_response(tokens, self._body.top_logprobs or 0)))

    def _close(self) -> list[Told]:
        if self._open is None:
            return []
        growing, self._open = self._open, None
        told = [self._at(*said) for said in growing.closing()]
        cut = self._end is not None and self._status == "incomplete"
        growing.item["status"] = "incomplete" if cut else "completed"
        return [*told, self._at("output_item.done", {"item": dict(growing.item)}, item_id=False)]

    def _id(self, prefix: str) -> str:
        return f"{prefix}{self._unique}{len(self._output) or ''}"

    def _at(self, name: str, fields: dict[str, Any], *, item_id: bool = True) -> Told:
        where: dict[str, Any] = {"output_index": len(self._output) - 1}
        if item_id:
            where["item_id"] = self._output[-1]["id"]
        return self._tell(name, **where, **fields)

    @property
    def _status(self) -> str:
        if self._error is not None:
            return "failed"
        if self._end is None:
            return "in_progress"
        return "incomplete" if self._end.reason is FinishReason.LENGTH else "completed"

    def _state(self, name: str) -> Told:
        return self._tell(name, response=self.whole())

    def _tell(self, name: str, /, **fields: Any) -> Told:
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
            "reasoning": self._reasoning,
            "service_tier": "default",
            "store": self.kept,
            "temperature": 1.0 if body.temperature is None else body.temperature,
            "text": {"format": {"type": "text"}, **text},
            "tool_choice": "auto" if body.tool_choice is None else body.tool_choice,
            "tools": [_shown(tool) for tool in body.tools or ()],
            "top_logprobs": body.top_logprobs or 0,
            "top_p": 1.0 if body.top_p is None else body.top_p,
            "truncation": body.truncation or "disabled",
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
            "output_tokens_details": {"reasoning_tokens": usage.reasoning_tokens},
            "total_tokens": usage.prompt_tokens + usage.completion_tokens,
        }
        return {"usage": counts}


def _shown(tool: Item) -> Item:
    """A tool as an answer tells of it."""
    return tool if is_namespace(tool) else {"strict": None, "parameters": None, **tool}
