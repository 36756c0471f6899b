"""What crosses the hop from Model to Ingress: small tuples, and failures as values."""

from __future__ import annotations

from typing import Any

from models.errors import EngineError
from models.events import Event, Finished, FinishReason, Reasoning, Started, Text, ToolCall, Usage
from models.token_engine import Admitted, Tokens

Packed = tuple[Any, ...]
Item = Admitted | Tokens | Event


def pack(item: Item | EngineError) -> Packed:
    """An item as a tuple that is cheap to pickle; its first field tells what it is."""
    match item:
        case Tokens(choice, token_ids, finish, stop_id):
            return ("tokens", choice, token_ids, finish and finish.value, stop_id)
        case Text(delta, choice):
            return ("text", delta, choice)
        case Reasoning(delta, choice):
            return ("reasoning", delta, choice)
        case ToolCall(index, id, name, arguments, choice):
            return ("call", index, id, name, arguments, choice)
        case Admitted(prompt_tokens, cached_tokens):
            return ("admitted", prompt_tokens, cached_tokens)
        case Started(prompt_tokens, cached_tokens):
            return ("started", prompt_tokens, cached_tokens)
        case Finished(reason, usage, stop, choice):
            return ("finished", reason.value, _counts(usage), stop, choice)
        case EngineError():
            return ("error", item)


def unpack(packed: Packed) -> Item:
    """The item again; raises it if it is an error."""
    match packed:
        case ("tokens", choice, token_ids, finish, stop_id):
            return Tokens(choice, token_ids, finish and FinishReason(finish), stop_id)
        case ("text", delta, choice):
            return Text(delta, choice)
        case ("reasoning", delta, choice):
            return Reasoning(delta, choice)
        case ("call", index, id, name, arguments, choice):
            return ToolCall(index, id, name, arguments, choice)
        case ("admitted", prompt_tokens, cached_tokens):
            return Admitted(prompt_tokens, cached_tokens)
        case ("started", prompt_tokens, cached_tokens):
            return Started(prompt_tokens, cached_tokens)
        case ("finished", reason, counts, stop, choice):
            return Finished(FinishReason(reason), Usage(*counts), stop, choice)
        case ("error", EngineError() as error):
            raise error
    raise ValueError(f"not an item of ours: {packed!r}")


def _counts(usage: Usage) -> tuple[int, ...]:
    return (
        usage.prompt_tokens,
        usage.completion_tokens,
        usage.cached_tokens,
        usage.reasoning_tokens,
    )
