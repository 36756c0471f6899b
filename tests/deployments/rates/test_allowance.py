from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from configs.settings import KeyLimits
from deployments.openai.errors import ApiError
from deployments.rates.allowance import Allowance
from deployments.rates.counts import LIFE_S, LenientCounts, MemoryCounts
from deployments.rates.estimate import Estimate
from deployments.rates.refusals import Refusals
from tests.deployments.rates.clock import MINUTE, Clock


@dataclass
class Shared:
    """What the replicas of an ingress have in common."""

    clock: Clock = field(default_factory=Clock)
    counts: MemoryCounts = field(default_factory=lambda: MemoryCounts(Clock()))
    refusals: Refusals = field(default_factory=Refusals)

    def allowance(self, **limits: int) -> Allowance:
        settings = KeyLimits.model_validate(limits)
        return Allowance("ann", settings, LenientCounts(self.counts), self.refusals, self.clock)

    async def take(self, prompt: int = 0, answer: int | None = 0, **limits: int) -> Allowance:
        allowance = self.allowance(**limits)
        await allowance.take(Estimate(prompt, answer))
        return allowance

    async def refused(self, prompt: int = 0, answer: int = 0, **limits: int) -> ApiError:
        with pytest.raises(ApiError) as caught:
            await self.take(prompt, answer, **limits)
        assert (caught.value.status, caught.value.code) == (429, "rate_limit_exceeded")
        return caught.value

    async def counted(self, kind: str, minute: float = MINUTE) -> int:
        name = f"ann/{kind}/{int(minute // 60)}"
        return (await self.counts.add({name: 0}))[name]


def told(allowance: Allowance) -> dict[str, str]:
    return dict(allowance.headers(anthropic=False))


async def test_requests_of_a_minute() -> None:
    shared = Shared()
    for left in (1, 0):
        allowance = await shared.take(requests_per_minute=2)
        assert told(allowance) == {
            "x-ratelimit-limit-requests": "2",
            "x-ratelimit-remaining-requests": str(left),
            "x-ratelimit-reset-requests": "2m0s",
        }
        await allowance.end(100)
    error = await shared.refused(requests_per_minute=2)
    assert error.type == "requests"
    assert error.headers == {"retry-after": "90", "retry-after-ms": "90000"}
    assert error.message == (
        "This API key is limited to 2 requests per minute: 2 are used. Please try again in 90 s."
    )
    shared.clock.pass_by(90)
    await shared.take(requests_per_minute=2)
    assert shared.refusals.by_key_and_kind == {("ann", "requests"): 1}


async def test_tokens_are_charged_before_and_corrected_after() -> None:
    shared = Shared()
    allowance = await shared.take(30, 60, tokens_per_minute=100)
    assert told(allowance)["x-ratelimit-remaining-tokens"] == "10"
    error = await shared.refused(5, 15, tokens_per_minute=100)
    assert error.type == "tokens"
    assert "100 tokens per minute: 90 are used and this request may need 20." in error.message
    assert await shared.counted("tokens") == 90
    await allowance.end(35)
    assert told(allowance)["x-ratelimit-remaining-tokens"] == "65"
    await shared.take(5, 15, tokens_per_minute=100)
    assert await shared.counted("tokens") == 55


async def test_more_may_be_used_than_was_charged() -> None:
    shared = Shared()
    allowance = await shared.take(10, None, tokens_per_minute=100)
    assert await shared.counted("tokens") == 100  # of an unlimited answer, what there is
    await allowance.end(400)
    assert told(allowance)["x-ratelimit-remaining-tokens"] == "0"
    error = await shared.refused(100, 0, tokens_per_minute=100)
    assert error.headers["retry-after"] == "120"


async def test_a_correction_is_of_the_minute_of_its_charge() -> None:
    shared = Shared()
    allowance = await shared.take(50, 50, tokens_per_minute=100)
    shared.clock.pass_by(90)
    await allowance.end(60)
    assert await shared.counted("tokens") == 60
    assert await shared.counted("tokens", shared.clock.now) == 0
    assert told(allowance)["x-ratelimit-remaining-tokens"] == "70"


async def test_what_never_fits_is_not_to_be_tried_again() -> None:
    shared = Shared()
    error = await shared.refused(60, 41, tokens_per_minute=100)
    assert error.type == "tokens"
    assert error.headers == {"x-should-retry": "false"}
    assert "101: 60 for its prompt and 41 for its answer" in error.message
    assert await shared.counted("tokens") == 0
    assert shared.refusals.by_key_and_kind == {("ann", "tokens"): 1}


async def test_requests_at_once() -> None:
    shared = Shared()
    limits = {"requests_at_once": 2, "requests_per_minute": 100}
    first, _ = [await shared.take(**limits) for _ in range(2)]
    error = await shared.refused(**limits)
    assert (error.type, error.headers["retry-after"]) == ("requests", "1")
    assert "2 requests at once" in error.message
    assert await shared.counted("requests") == 2
    await first.end(None)
    await shared.take(**limits)
    await shared.refused(**limits)
    assert shared.refusals.by_key_and_kind == {("ann", "requests_at_once"): 2}


async def test_the_longest_wait_is_told() -> None:
    shared = Shared()
    limits = {"requests_per_minute": 1, "tokens_per_minute": 100}
    await shared.take(100, 0, **limits)
    assert (await shared.refused(10, 0, **limits)).type == "requests"
    limits["requests_per_minute"] = 3
    assert (await shared.refused(10, 0, **limits)).type == "tokens"


@pytest.mark.parametrize(
    ("tokens", "left", "charged", "requests"),
    [(None, False, 0, 0), (None, True, 30, 1), (45, True, 45, 1), (45, False, 45, 1)],
)
async def test_how_a_request_may_end(
    tokens: int | None, left: bool, charged: int, requests: int
) -> None:
    shared = Shared()
    allowance = await shared.take(30, 50, tokens_per_minute=100, requests_per_minute=5)
    for _ in range(2):  # only the first end counts
        await allowance.end(tokens, left=left)
    assert await shared.counted("tokens") == charged
    assert await shared.counted("requests") == requests


async def test_anthropics_names_and_moments() -> None:
    allowance = await Shared().take(30, 50, tokens_per_minute=100, requests_per_minute=5)
    assert dict(allowance.headers(anthropic=True)) == {
        "anthropic-ratelimit-requests-limit": "5",
        "anthropic-ratelimit-requests-remaining": "4",
        "anthropic-ratelimit-requests-reset": "2027-01-15T08:02:00Z",
        "anthropic-ratelimit-tokens-limit": "100",
        "anthropic-ratelimit-tokens-remaining": "20",
        "anthropic-ratelimit-tokens-reset": "2027-01-15T08:02:00Z",
    }


async def test_what_was_charged_to_counts_that_are_lost_allows_nobody_more() -> None:
    life = Clock()
    shared = Shared(counts=MemoryCounts(life))
    limits = {"tokens_per_minute": 100, "requests_per_minute": 2, "requests_at_once": 2}
    earlier = [await shared.take(40, 0, **limits) for _ in range(2)]
    life.pass_by(LIFE_S)
    for allowance in earlier:
        await allowance.end(None)
    for _ in range(2):
        await shared.take(40, 0, **limits)
    await shared.refused(40, 0, **limits)


@dataclass(frozen=True)
class Plan:
    """One request: when it comes, how long it runs, what is charged for it and what it uses."""

    comes: int
    runs: int
    estimate: int
    used: int | None
    left: bool


plans = st.builds(
    Plan,
    comes=st.integers(0, 100),
    runs=st.integers(0, 100),
    estimate=st.integers(0, 400),
    used=st.none() | st.integers(0, 900),
    left=st.booleans(),
)


@given(st.lists(plans, max_size=12))
def test_after_all_have_ended_the_count_is_what_was_used(requests: list[Plan]) -> None:
    asyncio.run(_all_end(requests))


async def _all_end(requests: list[Plan]) -> None:
    """In the order of their moments; more may be asked for than is allowed."""
    shared = Shared()
    running: dict[int, Allowance] = {}
    expected: dict[str, dict[float, int]] = {"tokens": {}, "requests": {}}
    moments = [(plan.comes, False, i) for i, plan in enumerate(requests)]
    moments += [(plan.comes + plan.runs, True, i) for i, plan in enumerate(requests)]
    for moment, ends, i in sorted(moments):
        shared.clock.now = MINUTE + moment
        plan = requests[i]
        if not ends:
            await _begin(shared, running, i, plan)
        elif i in running:
            await running.pop(i).end(plan.used, left=plan.left)
            minute = MINUTE + plan.comes // 60 * 60
            ran = plan.used is not None or plan.left
            tokens = plan.estimate if plan.used is None and plan.left else plan.used or 0
            for kind, amount in (("tokens", tokens), ("requests", int(ran))):
                expected[kind][minute] = expected[kind].get(minute, 0) + amount
    for kind in ("tokens", "requests"):
        for minute in (MINUTE, MINUTE + 60, MINUTE + 120, MINUTE + 180):
            assert await shared.counted(kind, minute) == expected[kind].get(minute, 0)
    slot = int(shared.clock.now // 30)
    claimed = await shared.counts.add({f"ann/at-once/{slot - i}": 0 for i in range(-1, 8)})
    assert set(claimed.values()) == {0}


async def _begin(shared: Shared, running: dict[int, Allowance], i: int, plan: Plan) -> None:
    limits: dict[str, Any] = {
        "tokens_per_minute": 1000,
        "requests_per_minute": 8,
        "requests_at_once": 4,
    }
    allowance = shared.allowance(**limits)
    with suppress(ApiError):
        await allowance.take(Estimate(plan.estimate, 0))
        running[i] = allowance


class Overtaking(MemoryCounts):
    """The later something is asked, the sooner it is done, as over several connections."""

    def __init__(self) -> None:
        super().__init__(Clock())
        self._delay_s = 0.1

    async def add(self, amounts: Mapping[str, int]) -> dict[str, int]:
        self._delay_s /= 10
        await asyncio.sleep(self._delay_s)
        return await super().add(amounts)


async def test_what_is_given_back_comes_behind_what_took_it() -> None:
    shared = Shared(counts=Overtaking())
    allowance = shared.allowance(requests_at_once=1, tokens_per_minute=100)
    taking = asyncio.create_task(allowance.take(Estimate(10, 0)))
    await asyncio.sleep(0)
    taking.cancel()
    with suppress(asyncio.CancelledError):
        await taking
    await allowance.end(None)
    await asyncio.sleep(0.02)  # that of the claim, were it under way
    assert await shared.counted("tokens") == 0
    await shared.take(10, requests_at_once=1)
