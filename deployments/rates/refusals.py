"""What is said to a key that has used what it may."""

from __future__ import annotations

import math
from collections import Counter

from deployments.openai.errors import NO_RETRY, ApiError, retry_after
from deployments.rates.use import Use
from models.metric_table import LIMITED, UNCOUNTED
from models.metrics import Sample

REQUESTS, TOKENS, AT_ONCE = "requests", "tokens", "requests_at_once"
AT_ONCE_RETRY_S = 1.0
CODE = "rate_limit_exceeded"


class Refusals:
    """Counts them by the name of their key and the kind of its limit; and those never counted."""

    def __init__(self) -> None:
        self.by_key_and_kind: Counter[tuple[str, str]] = Counter()
        self.uncounted = 0  # requests that were let in because the counts could not be had

    def samples(self) -> list[Sample]:
        """As they are told to Prometheus."""
        refused = self.by_key_and_kind.items()
        limited = [
            (LIMITED.name, (("key", key), ("kind", kind)), float(count))
            for (key, kind), count in refused
        ]
        return [*limited, (UNCOUNTED.name, (), float(self.uncounted))]

    def note(self, key: str, kind: str) -> None:
        self.by_key_and_kind[key, kind] += 1


def used_up(kind: str, use: Use, cost: int) -> ApiError:
    """A minute's requests or tokens leave too little for this one."""
    wait_s = use.wait_s(cost)
    needed = f" and this request may need {cost}" if kind == TOKENS else ""
    message = (
        f"This API key is limited to {use.limit} {kind} per minute: {math.ceil(use.used)} are"
        f" used{needed}. Please try again in {wait_s:.3g} s."
    )
    return ApiError(429, message, type=kind, code=CODE, headers=retry_after(wait_s))


def too_many_at_once(limit: int) -> ApiError:
    """As many of its requests run as may."""
    message = (
        f"This API key is limited to {limit} requests at once, and as many are running. Please try"
        f" again when one of them has ended."
    )
    return ApiError(429, message, type=REQUESTS, code=CODE, headers=retry_after(AT_ONCE_RETRY_S))


def never_fits(limit: int, prompt: int, answer: int) -> ApiError:
    """Not even an idle minute would do: asking again is of no use."""
    message = (
        f"This API key is limited to {limit} tokens per minute, and this request may need"
        f" {prompt + answer}: {prompt} for its prompt and {answer} for its answer. Shorten the"
        f" prompt or ask for a shorter answer."
    )
    return ApiError(429, message, type=TOKENS, code=CODE, headers=NO_RETRY)
