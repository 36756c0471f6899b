"""Counters in a Redis or Valkey that several graphs may share."""

from __future__ import annotations

from redis.asyncio import Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import RedisError

from deployments.rates.counts import LIFE_S, Amounts
from models.errors import Failed

PREFIX = "stepserve/"
ADD = """
local count = math.max(0, (redis.call("GET", KEYS[1]) or 0) + ARGV[1])
redis.call("SET", KEYS[1], count, "EX", ARGV[2])
return count
"""


class RedisCounts:
    """``Counts`` at a URI. What is asked at once takes one exchange; nothing is tried twice."""

    def __init__(self, uri: str) -> None:
        uri = uri.replace("valkey", "redis", 1) if uri.startswith("valkey") else uri
        self._redis = Redis.from_url(uri, retry=Retry(NoBackoff(), 0))

    async def add(self, amounts: Amounts) -> dict[str, int]:
        pipe = self._redis.pipeline(transaction=False)
        for name, amount in amounts.items():
            if amount:
                pipe.eval(ADD, 1, PREFIX + name, amount, LIFE_S)
            else:
                pipe.get(PREFIX + name)
        try:
            answers = await pipe.execute()
        except (RedisError, OSError) as error:
            raise Failed(f"{type(error).__name__}: {error}") from error
        return {name: int(answer or 0) for name, answer in zip(amounts, answers, strict=True)}
