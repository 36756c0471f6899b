"""What crosses the hop from Model to Ingress: small tuples, and failures as values."""

from __future__ import annotations

from typing import Any

from models.errors import EngineError
from models.events import Event, Finished, FinishReason, Started, Text, Usage
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
        case Admitted(prompt_tokens, cached_tokens):
            return ("admitted", prompt_tokens, cached_tokens)
        case Started(prompt_tokens, cached_tokens):
            return ("started", prompt_tokens, cached_tokens)
        case Finished(reason, Usage(prompt, completion, cached), stop, choice):
            return ("finished", reason.value, prompt, completion, cached, stop, choice)
        case EngineError():
            return ("error", item)


def unpack(packed: Packed) -> Item:
    """The item again; raises it if it is an error."""
    match packed:
        case ("tokens", choice, token_ids, finish, stop_id):
            return Tokens(choice, token_ids, finish and FinishReason(finish), stop_id)
        case ("text", delta, choice):
            return Text(delta, choice)
        case ("admitted", prompt_tokens, cached_tokens):
            return Admitted(prompt_tokens, cached_tokens)
        case ("started", prompt_tokens, cached_tokens):
            return Started(prompt_tokens, cached_tokens)
        case ("finished", reason, prompt, completion, cached, stop, choice):
            usage = Usage(prompt, completion, cached)
            return Finished(FinishReason(reason), usage, stop, choice)
        case ("error", EngineError() as error):
            raise error
    raise ValueError(f"not an item of ours: {packed!r}")
