"""Which replica a prompt goes to, so that its beginning is found in that one's prefix cache.

A beginning is at home where it was sent from here last: no replica is asked what it holds, and one
that has too much to do by then loses it to the next. Knows nothing of Ray.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Collection, Iterator, Mapping, Sequence
from hashlib import blake2b

from models.request import ChatPrompt, GenerateRequest, Prompt, TextPrompt
from models.tokens import TokenRequest

CHUNK = 64  # tokens by which beginnings grow
CHARACTERS = 4  # that are worth a token, where there are none yet
WORTH = 8  # a beginning is worth a way of its own if it is one part of so many of the prompt
BUSIER = 1.25  # times a replica's share of all requests, and it is too busy
KNOWN = 1 << 16  # beginnings

Request = TokenRequest | GenerateRequest


class Homes:
    """The home of each beginning; of more than ``known`` those used longest ago are forgotten."""

    def __init__(self, known: int = KNOWN) -> None:
        self._known = known
        self._homes: OrderedDict[int, str] = OrderedDict()

    def of(self, beginnings: Sequence[int], among: Collection[str]) -> str | None:
        """The home of the longest one that is worth it and has its home among these replicas."""
        worth = beginnings[len(beginnings) // WORTH :]
        homes = map(self._homes.get, reversed(worth))
        return next((home for home in homes if home in among), None)

    def settle(self, beginnings: Sequence[int], home: str) -> None:
        for beginning in reversed(beginnings):  # the shortest last: it outlives those it is part of
            self._homes[beginning] = home
            self._homes.move_to_end(beginning)
        while len(self._homes) > self._known:
            self._homes.popitem(last=False)


def beginnings(request: Request) -> list[int]:
    """Of the prompt, each a chunk longer than the one before; equal where all up to there is.

    Those of requests with different cache keys, salts or adapters have nothing in common.
    """
    if isinstance(request, TokenRequest):
        return list(_chain(request, request.token_ids))
    return list(_chain(request, _unencoded(request.prompt)))


def _chain(request: Request, whole: tuple[int, ...] | str) -> Iterator[int]:
    size = CHUNK if isinstance(whole, tuple) else CHUNK * CHARACTERS
    link = hash((request.cache_key, request.cache_salt, request.adapter))
    for end in range(size, len(whole) + 1, size):
        link = hash((link, whole[end - size : end]))
        yield link


def _unencoded(prompt: Prompt) -> tuple[int, ...] | str:
    match prompt:
        case ChatPrompt(messages, tools):
            return "".join(map(str, (*tools, *messages)))
        case TextPrompt(text):
            return text
        case _:
            return prompt.token_ids


def roomy(loads: Mapping[str, int], places: int) -> set[str]:
    """The replicas that are not too busy for one request more.

    None of those that have no place free is, while another has one.
    """
    fair = math.ceil(BUSIER * (sum(loads.values()) + 1) / len(loads))
    most = min(fair, places) if min(loads.values()) < places else fair
    return {replica for replica, load in loads.items() if load < most}


def by_key(key: str, among: Collection[str]) -> str | None:
    """The one of these replicas that everybody sends this key to (rendezvous hashing)."""
    return max(among, key=lambda replica: _weight(key, replica), default=None)


def _weight(key: str, replica: str) -> bytes:
    return blake2b(f"{replica} {key}".encode(errors="surrogatepass"), digest_size=8).digest()
