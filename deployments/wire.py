"""What crosses the hop from Model to Ingress: small tuples, and failures as values."""

from __future__ import annotations

from typing import Any

from models.errors import EngineError
from models.events import Event, Finished, FinishReason, Reasoning, Started, Text, ToolCall, Usage
from models.tokens import Admitted, Tokens

Packed = tuple[Any, ...]
Item = Admitted | Tokens | Event


def pack(item: Item | EngineError) -> Packed:
    """An item as a tuple that is cheap to pickle; its first field tells what it is."""
    match item:
        case Tokens(choice, token_ids, finish, stop_id, scores):
            return ("tokens", choice, token_ids, finish and finish.value, stop_id, *_some(scores))
        case Text(delta, choice, logprobs, token_ids):
            return ("text", delta, choice, *_some(logprobs, token_ids))
        case Reasoning(delta, choice, logprobs, token_ids):
            return ("reasoning", delta, choice, *_some(logprobs, token_ids))
        case ToolCall(index, id, name, arguments, choice, logprobs, token_ids):
            return ("call", index, id, name, arguments, choice, *_some(logprobs, token_ids))
        case Admitted(prompt_tokens, cached_tokens, scores):
            return ("admitted", prompt_tokens, cached_tokens, *_some(scores))
        case Started(prompt_tokens, cached_tokens, text, token_ids, logprobs):
            rest = _some(text, token_ids, logprobs)
            return ("started", prompt_tokens, cached_tokens, *rest)
        case Finished(reason, usage, stop, choice, logprobs, token_ids):
            told = _some(logprobs, token_ids)
            return ("finished", reason.value, _counts(usage), stop, choice, *told)
        case EngineError():
            return ("error", item)


def unpack(packed: Packed) -> Item:
    """The item again; raises it if it is an error."""
    if packed[0] == "tokens" and len(packed) == 5:  # almost all of them
        _, choice, token_ids, finish, stop_id = packed
        return Tokens(choice, token_ids, finish and FinishReason(finish), stop_id)
    match packed:
        case ("tokens", choice, token_ids, finish, stop_id, *scores):
            return Tokens(choice, token_ids, finish and FinishReason(finish), stop_id, *scores)
        case ("text", delta, choice, *rest):
            return Text(delta, choice, *rest)
        case ("reasoning", delta, choice, *rest):
            return Reasoning(delta, choice, *rest)
        case ("call", index, id, name, arguments, choice, *rest):
            return ToolCall(index, id, name, arguments, choice, *rest)
        case ("admitted", prompt_tokens, cached_tokens, *scores):
            return Admitted(prompt_tokens, cached_tokens, *scores)
        case ("started", prompt_tokens, cached_tokens, *rest):
            return Started(prompt_tokens, cached_tokens, *rest)
        case ("finished", reason, counts, stop, choice, *rest):
            return Finished(FinishReason(reason), Usage(*counts), stop, choice, *rest)
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


def _some(*fields: Any) -> tuple[Any, ...]:
    """Fields that are mostly empty, which then cost nothing."""
    return fields if any(fields) else ()
