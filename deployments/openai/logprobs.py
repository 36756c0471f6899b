"""Logprobs on the wire: OpenAI's form for chats, its other for completions, vLLM's for prompts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from models.events import TokenLogprob, TopLogprob

LEAST = -9999.0  # stands for a probability of nothing, which JSON cannot tell


def of_chat(tokens: Sequence[TokenLogprob], top: int, *, ids: bool = False) -> dict[str, Any]:
    """``logprobs`` of a choice or a chunk, with up to ``top`` alternatives a token.

    With ``ids`` a token is called by its id, as vLLM does.
    """
    return {"content": [_content(token, top, ids) for token in tokens], "refusal": None}


def of_response(tokens: Sequence[TokenLogprob], top: int) -> list[dict[str, Any]]:
    """The same for a part of a response's text."""
    return [_content(token, top, False) for token in tokens]


def of_completion(
    tokens: Sequence[TokenLogprob], top: int, before: int, *, ids: bool = False
) -> dict[str, Any]:
    """The same for completions; ``before`` counts the characters of the prompt that is echoed."""
    return {
        "tokens": [_name(token, ids) for token in tokens],
        "token_logprobs": [_finite(token.logprob) for token in tokens],
        "top_logprobs": [_alternatives(token, top, ids) for token in tokens],
        "text_offset": [before + token.offset for token in tokens],
    }


def of_prompt(tokens: Sequence[TokenLogprob], top: int) -> list[dict[str, Any] | None]:
    """``prompt_logprobs``: by token id, the token itself and the ``top`` likeliest."""
    return [None if token.logprob is None else _by_id(token, top) for token in tokens]


def _content(token: TokenLogprob, top: int, ids: bool) -> dict[str, Any]:
    return {**_entry(token, ids), "top_logprobs": [_entry(one, ids) for one in token.top[:top]]}


def _entry(token: TokenLogprob | TopLogprob, ids: bool) -> dict[str, Any]:
    name = _by_number(token) if ids else token.token
    return {"token": name, "logprob": _finite(token.logprob), "bytes": list(token.bytes)}


def _alternatives(token: TokenLogprob, top: int, ids: bool) -> dict[str, float | None] | None:
    """The likeliest and the token itself, which is one more if it is not among them."""
    if token.logprob is None:
        return None
    shown: dict[str, float | None] = {}
    for one in token.top[:top]:
        shown.setdefault(_name(one, ids), _finite(one.logprob))
    shown.setdefault(_name(token, ids), _finite(token.logprob))
    return shown


def _by_id(token: TokenLogprob, top: int) -> dict[str, Any]:
    likeliest = {str(one.token_id): _ranked(one, i) for i, one in enumerate(token.top[:top], 1)}
    return {str(token.token_id): _ranked(token, token.rank), **likeliest}


def _ranked(token: TokenLogprob | TopLogprob, rank: int | None) -> dict[str, Any]:
    return {"logprob": _finite(token.logprob), "rank": rank, "decoded_token": token.token}


def _name(token: TokenLogprob | TopLogprob, ids: bool) -> str:
    return _by_number(token) if ids else _readable(token)


def _by_number(token: TokenLogprob | TopLogprob) -> str:
    return f"token_id:{token.token_id}"


def _readable(token: TokenLogprob | TopLogprob) -> str:
    """Its text; half a character as OpenAI spells it, as ``bytes:`` and hex: keys must differ."""
    try:
        return token.bytes.decode()
    except UnicodeDecodeError:
        return "bytes:" + "".join(f"\\x{byte:02x}" for byte in token.bytes)


def _finite(logprob: float | None) -> float | None:
    return None if logprob is None else max(LEAST, logprob)
