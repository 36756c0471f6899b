"""How often a line is asked again, and after how long."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable
from itertools import count

from deployments.batches.inside import Answer

logger = logging.getLogger("stepserve")

FULL = (429, 503)  # there will be room again, whenever that is
TRIES = 6  # of what else may pass, as a replica that failed is replaced within half a minute
FIRST_S, LONGEST_S = 1.0, 30.0  # between two of them


async def answer_of(ask: Callable[[], Awaitable[Answer]]) -> Answer:
    """The first answer that asking again would not change, as OpenAI's clients understand it."""
    failures = 0
    for attempt in count():
        answer = await ask()
        if answer.status not in FULL:
            failures += 1
            if failures == TRIES or not _may_pass(answer):
                return answer
        wait_s = _wait_s(answer, attempt)
        logger.info("a line of a batch waits %.1f s after a %d", wait_s, answer.status)
        await asyncio.sleep(wait_s)
    raise AssertionError


def _may_pass(answer: Answer) -> bool:
    return answer.status >= 500 and answer.headers.get("x-should-retry") != "false"


def _wait_s(answer: Answer, attempt: int) -> float:
    """As long as the server says, or twice as long each time; never two lines at once."""
    told = answer.headers.get("retry-after-ms")
    seconds = float(told) / 1000 if told else FIRST_S * 2 ** min(attempt, 10)
    return min(seconds, LONGEST_S) * random.uniform(1.0, 1.5)
