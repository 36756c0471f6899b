"""How many tokens a request may take, told before it runs and without a tokenizer."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import ceil

from deployments.encoding import characters
from models.embedding import WHOLE_CONTEXT, EmbedRequest
from models.request import GenerateRequest, Prompt, TokenPrompt

CHARACTERS = 4  # of a token, as English has it
UNSAID = 256  # tokens of an answer of which nothing was said


@dataclass(frozen=True, slots=True)
class Estimate:
    """Tokens of prompts and answers; ``answer`` is None where its request names no limit."""

    prompt: int
    answer: int | None

    def charge(self, limit: int) -> int:
        """What is charged before it runs, of a limit that it may exceed."""
        if self.answer is not None:
            return self.prompt + self.answer
        return self.prompt + min(UNSAID, max(0, limit - self.prompt))


NOTHING = Estimate(0, 0)


def of_generation(
    requests: Sequence[GenerateRequest], prompts: Iterable[int], max_context: int
) -> Estimate:
    """Of prompts of so many tokens, and all their choices.

    ``max_context`` is 0 where it is not known.
    """
    prompt = sum(prompts)
    limit = requests[0].sampling.max_tokens
    if limit is None:
        return Estimate(prompt, None)
    longest = min(limit, max_context) if max_context else limit
    return Estimate(prompt, longest * sum(one.n for one in requests))


def of_embedding(request: EmbedRequest) -> Estimate:
    """Of all inputs."""
    truncated = None if request.truncate == WHOLE_CONTEXT else request.truncate
    return Estimate(sum(kept(_tokens(one), truncated) for one in request.inputs), 0)


def guessed(request: GenerateRequest) -> int:
    """About how many tokens a prompt has, as it is read."""
    return kept(_tokens(request.prompt), request.truncate_prompt_tokens)


def kept(tokens: int, truncated: int | None) -> int:
    """How many of so many are left where only ``truncated`` are read."""
    return tokens if truncated is None else min(tokens, truncated)


def _tokens(prompt: Prompt) -> int:
    if isinstance(prompt, TokenPrompt):
        return len(prompt.token_ids)
    return ceil(characters(prompt) / CHARACTERS)
