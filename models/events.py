"""What an engine answers: ``Started`` once, what it says, ``Finished`` once a choice."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class FinishReason(StrEnum):
    """Why a choice ended. ``CANCELLED`` and ``ERROR`` are for metrics and logs only."""

    STOP = "stop"
    LENGTH = "length"
    TOOL_CALLS = "tool_calls"
    CANCELLED = "cancelled"
    ERROR = "error"


@dataclass(frozen=True, slots=True)
class Usage:
    """Token counts of one choice.

    ``cached_tokens`` of the prompt came from the prefix cache, ``reasoning_tokens`` of the
    completion are reasoning.
    """

    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int = 0
    reasoning_tokens: int = 0


@dataclass(frozen=True, slots=True)
class Started:
    """The prompt was accepted and its first token is on its way."""

    prompt_tokens: int
    cached_tokens: int


@dataclass(frozen=True, slots=True)
class Text:
    """More text of one choice; never empty, never half a character."""

    delta: str
    choice: int = 0


@dataclass(frozen=True, slots=True)
class Reasoning:
    """More of what a choice thinks before it answers; never empty."""

    delta: str
    choice: int = 0


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A call of one of the request's functions, or more of its arguments.

    ``index`` counts the calls of a choice from 0. ``id`` and ``name`` are in the first event of a
    call only; the ``arguments`` of all its events, joined, are a JSON text.
    """

    index: int
    id: str | None = None
    name: str | None = None
    arguments: str = ""
    choice: int = 0


@dataclass(frozen=True, slots=True)
class Finished:
    """The last event of one choice.

    ``stop`` is the stop that matched as its caller spelled it: the string, or the id of one of
    ``stop_token_ids``; None at an end-of-sequence token and at the length limit.
    """

    reason: FinishReason
    usage: Usage
    stop: str | int | None = None
    choice: int = 0


Event = Started | Reasoning | Text | ToolCall | Finished
