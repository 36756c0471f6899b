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
class TopLogprob:
    """One of the likeliest tokens at its place; see ``TokenLogprob``."""

    token_id: int
    token: str
    bytes: bytes
    logprob: float


@dataclass(frozen=True, slots=True)
class TokenLogprob:
    """How likely the model held a token, before temperature, penalties and the like.

    ``bytes`` are the token's own, which may be half a character; ``token`` is what can be read of
    them. ``logprob`` is the natural logarithm, and None for the first token of a prompt; ``top``
    are the likeliest tokens, falling. ``rank`` counts from 1. ``offset`` is where its text begins
    in the answer's (or the prompt's), in characters.
    """

    token_id: int
    token: str
    bytes: bytes
    logprob: float | None
    top: tuple[TopLogprob, ...] = ()
    rank: int | None = None
    offset: int = 0


@dataclass(frozen=True, slots=True)
class Started:
    """The prompt was accepted and its first token is on its way.

    With what was asked for of the prompt itself: its text, its ids, a logprob for each of them.
    """

    prompt_tokens: int
    cached_tokens: int
    text: str = ""
    token_ids: tuple[int, ...] = ()
    logprobs: tuple[TokenLogprob, ...] = ()


@dataclass(frozen=True, slots=True)
class Text:
    """More text of one choice; never empty, never half a character.

    ``logprobs`` and ``token_ids``, if asked for, are of the tokens whose text is now out: a token
    whose text is held back comes with the text.
    """

    delta: str
    choice: int = 0
    logprobs: tuple[TokenLogprob, ...] = ()
    token_ids: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Reasoning:
    """More of what a choice thinks before it answers; never empty. For the rest see ``Text``."""

    delta: str
    choice: int = 0
    logprobs: tuple[TokenLogprob, ...] = ()
    token_ids: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A call of one of the request's functions, or more of its arguments.

    ``index`` counts the calls of a choice from 0. ``id`` and ``name`` are in the first event of a
    call only; the ``arguments`` of all its events, joined, are a JSON text. For the rest see
    ``Text``.
    """

    index: int
    id: str | None = None
    name: str | None = None
    arguments: str = ""
    choice: int = 0
    logprobs: tuple[TokenLogprob, ...] = ()
    token_ids: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Finished:
    """The last event of one choice.

    ``stop`` is the stop that matched as its caller spelled it: the string, or the id of one of
    ``stop_token_ids``; None at an end-of-sequence token and at the length limit. ``logprobs`` and
    ``token_ids``, if asked for, are of the last tokens that brought no text: the end-of-sequence
    token, or those of the stop.
    """

    reason: FinishReason
    usage: Usage
    stop: str | int | None = None
    choice: int = 0
    logprobs: tuple[TokenLogprob, ...] = ()
    token_ids: tuple[int, ...] = ()


Part = Reasoning | Text | ToolCall  # of what a choice says
Event = Started | Part | Finished
