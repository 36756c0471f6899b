"""Generations and their keys' tokens."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

from deployments.rates.allowance import Allowance
from deployments.rates.estimate import NOTHING, guessed, kept, of_generation
from models.engine import LlmEngine, Tokenizes
from models.errors import Invalid
from models.request import GenerateRequest


async def charge_generation(
    allowance: Allowance, requests: Sequence[GenerateRequest], engine: LlmEngine
) -> None:
    """Raises ``ApiError`` (429), or what the engine does.

    A prompt that seems larger than its key's limit is counted, lest it be refused for a guess.
    """
    limit = allowance.tokens_per_minute
    if limit is None:
        await allowance.take(NOTHING)
        return
    estimate = of_generation(requests, map(guessed, requests), engine.max_context)
    if estimate.charge(limit) > limit and isinstance(engine, Tokenizes):
        with suppress(Invalid):  # of an engine whose tokenizer is not known
            counts = [await counted(engine, one) for one in requests]
            estimate = of_generation(requests, counts, engine.max_context)
    await allowance.take(estimate)


async def counted(engine: Tokenizes, request: GenerateRequest) -> int:
    """Tokens of a prompt, as it is read."""
    tokens = len(await engine.tokenize(request.prompt))
    return kept(tokens, request.truncate_prompt_tokens)
