"""What one request takes of its key's limits: charged before it runs, corrected when it ends."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping

from configs.settings import KeyLimits
from deployments.openai.errors import ApiError
from deployments.rates.at_once import Place
from deployments.rates.counts import Adding, LenientCounts
from deployments.rates.estimate import Estimate
from deployments.rates.refusals import (
    AT_ONCE,
    REQUESTS,
    TOKENS,
    Refusals,
    never_fits,
    too_many_at_once,
    used_up,
)
from deployments.rates.told import headers
from deployments.rates.use import MINUTE_S, Use

Clock = Callable[[], float]  # seconds since 1970, the same for all who share counts


class Allowance:
    """Of one request; ``key`` is the name of its API key."""

    def __init__(
        self, key: str, limits: KeyLimits, counts: LenientCounts, refusals: Refusals, clock: Clock
    ) -> None:
        self.key = key
        self._limits = _by_kind(limits)
        self._at_once = limits.requests_at_once
        self._counts = counts
        self._refusals = refusals
        self._clock = clock
        self._minute = 0  # in which it was charged
        self._charged: dict[str, int] = {}
        self._prompt = 0  # tokens, as estimated
        self._place: Place | None = None
        self._uses: dict[str, Use] = {}
        self._adding: Adding | None = None

    @property
    def tokens_per_minute(self) -> int | None:
        return self._limits.get(TOKENS)

    async def take(self, estimate: Estimate) -> None:
        """Charges it, or raises ``ApiError`` (429) and charges nothing.

        A request that cannot be counted is let in.
        """
        await self._check_size(estimate)
        costs = self._costs(estimate)
        place = None if self._at_once is None else Place(self.key, self._counts, self._clock)
        self._prompt = estimate.prompt
        self._minute, self._charged, self._place = self._now()[0], costs, place
        counts = await self._add(self._amounts(costs) | (place.claim() if place else {}))
        if counts is None:
            self._charged, self._place = {}, None
            self._refusals.uncounted += 1
            return
        refusal = self._refusal(costs, 0 if place is None else place.taken(counts))
        if refusal is not None:
            await self._give_back()
            raise refusal
        if place is not None:
            place.keep()

    async def look(self) -> None:
        """Reads what is used, for the headers of an answer that takes nothing."""
        if self._limits and not self._uses:
            await self._add({})

    async def end(self, tokens: int | None, *, left: bool = False) -> None:
        """Corrects the charge to the tokens that were used; None: gives back all of it.

        Of a client who ``left`` before its answer began its prompt was, at most.
        """
        if tokens is None and not left:
            await self._give_back()
        else:
            await self._settle({REQUESTS: 1, TOKENS: self._prompt if tokens is None else tokens})

    def headers(self, *, anthropic: bool) -> Iterator[tuple[str, str]]:
        """What the answer tells of the limits, as they were last seen."""
        return headers(self._uses, anthropic=anthropic, now=self._clock())

    def _costs(self, estimate: Estimate) -> dict[str, int]:
        costs = {REQUESTS: 1, TOKENS: estimate.charge(self._limits.get(TOKENS, 0))}
        return {kind: costs[kind] for kind in self._limits}

    async def _check_size(self, estimate: Estimate) -> None:
        limit = self.tokens_per_minute
        if limit is not None and estimate.charge(limit) > limit:
            await self.look()
            self._refusals.note(self.key, TOKENS)
            raise never_fits(limit, estimate.prompt, estimate.answer or 0)

    def _refusal(self, costs: dict[str, int], taken: int) -> ApiError | None:
        over = [kind for kind, use in self._uses.items() if use.over]
        uses = {kind: use._replace(now=use.now - costs[kind]) for kind, use in self._uses.items()}
        crowded = self._at_once is not None and taken > self._at_once
        if not over and not crowded:
            return None
        self._uses = uses
        if over:
            kind = max(over, key=lambda kind: uses[kind].wait_s(costs[kind]))
            self._refusals.note(self.key, kind)
            return used_up(kind, uses[kind], costs[kind])
        self._refusals.note(self.key, AT_ONCE)
        return too_many_at_once(self._at_once or 0)

    async def _give_back(self) -> None:
        await self._settle(dict.fromkeys(self._charged, 0))

    async def _settle(self, used: Mapping[str, int]) -> None:
        charged, self._charged = self._charged, {}
        place, self._place = self._place, None
        amounts = self._amounts({kind: used[kind] - cost for kind, cost in charged.items()})
        if place is not None:
            amounts |= place.release()
        if any(amounts.values()):
            await self._add(amounts)

    async def _add(self, amounts: Mapping[str, int]) -> dict[str, int] | None:
        """Also looks at all that is used."""
        minute, elapsed_s = self._now()
        seen = {
            kind: (self._counter(kind, minute - 1), self._counter(kind, minute))
            for kind in self._limits
        }
        asked = {name: 0 for names in seen.values() for name in names} | {**amounts}
        # What is given back must not come before what took it, of which whoever left knows no end.
        self._adding = self._counts.begin(asked, after=self._adding)
        counts = await asyncio.shield(self._adding)
        if counts is not None:
            self._uses = {
                kind: Use(self._limits[kind], counts[before], counts[now], elapsed_s)
                for kind, (before, now) in seen.items()
            }
        return counts

    def _amounts(self, amounts: Mapping[str, int]) -> dict[str, int]:
        """By the counters of the minute in which it was charged."""
        return {self._counter(kind, self._minute): amount for kind, amount in amounts.items()}

    def _counter(self, kind: str, minute: int) -> str:
        return f"{self.key}/{kind}/{minute}"

    def _now(self) -> tuple[int, float]:
        minute, elapsed_s = divmod(self._clock(), MINUTE_S)
        return int(minute), elapsed_s


def _by_kind(limits: KeyLimits) -> dict[str, int]:
    found = {REQUESTS: limits.requests_per_minute, TOKENS: limits.tokens_per_minute}
    return {kind: limit for kind, limit in found.items() if limit is not None}
