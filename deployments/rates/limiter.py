"""The layer that holds a key to its limits."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping

from starlette.datastructures import Headers
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from configs.settings import RateLimits
from deployments.access import Access, access_of
from deployments.openai.errors import ApiError
from deployments.rates.allowance import Allowance, Clock
from deployments.rates.counts import Counts, LenientCounts
from deployments.rates.refusals import Refusals
from models.errors import EngineError


class RateLimiter:
    """The limits of all keys. ``names`` are those of keys that have one, by their opaque names.

    Raises ``ValueError`` for limits of a name that no key has.
    """

    def __init__(
        self,
        settings: RateLimits,
        names: Mapping[str, str],
        counts: Counts,
        refusals: Refusals,
        clock: Clock = time.time,
    ) -> None:
        self._default = settings
        self._own = {one.name: settings.for_key(one) for one in settings.keys}
        self._names = names
        self._counts = LenientCounts(counts)
        self._refusals = refusals
        self._clock = clock
        if unknown := sorted(self._own.keys() - {*names.values()}):
            raise ValueError(f"`rate_limits.keys`: no API key is named {', '.join(unknown)}")

    def allowance(self, key: str) -> Allowance | None:
        """For a request with the key of this opaque name; None if nothing limits it."""
        name = self._names.get(key, key)
        limits = self._own.get(name, self._default)
        if not limits.limited:
            return None
        return Allowance(name, limits, self._counts, self._refusals, self._clock)


class Limited:
    """Gives a request its allowance, which its endpoint takes from, and settles it at the end.

    That is before the end of the answer goes out, lest who asks again at once find less than there
    is.
    """

    def __init__(self, app: ASGIApp, limiter: RateLimiter) -> None:
        self._app = app
        self._limiter = limiter

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        access = access_of(scope)
        allowance = access.allowance = self._limiter.allowance(access.key)
        if allowance is None:
            await self._app(scope, receive, send)
            return

        async def send_settled(message: Message) -> None:
            if _ends(message):
                await allowance.end(_used(access))
            await send(message)

        try:
            await self._app(scope, receive, send_settled)
        except (ApiError, EngineError):
            await allowance.end(_used(access))
            await allowance.look()
            raise
        except (ClientDisconnect, asyncio.CancelledError):
            await allowance.end(_used(access), left=True)
            raise
        finally:
            await allowance.end(_used(access))


def _ends(message: Message) -> bool:
    """Whether all is known: an answer that comes whole tells in its headers what is then left."""
    if message["type"] == "http.response.start":
        return not Headers(raw=message["headers"])["content-type"].startswith("text/event-stream")
    return not message.get("more_body", False)


def _used(access: Access) -> int | None:
    """Tokens, None if it did not run."""
    if access.prompt_tokens is None:
        return None
    return access.prompt_tokens + (access.completion_tokens or 0)
