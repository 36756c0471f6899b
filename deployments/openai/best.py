"""``best_of``: which of many choices are shown."""

from __future__ import annotations

from collections.abc import Sequence

from deployments.openai.form import Choice


def best(choices: Sequence[Choice], of: int, count: int) -> list[Choice]:
    """Of every ``of`` choices those ``count`` with the highest logprob per token, highest first.

    The end of the sequence is a token too.
    """
    groups = (choices[first : first + of] for first in range(0, len(choices), of))
    return [one for group in groups for one in _ranked(group)[:count]]


def _ranked(choices: Sequence[Choice]) -> list[Choice]:
    return sorted(choices, key=_mean_logprob, reverse=True)


def _mean_logprob(choice: Choice) -> float:
    tokens = choice.logprobs + choice.end.logprobs
    logprobs = [token.logprob for token in tokens if token.logprob is not None]
    return sum(logprobs) / len(logprobs) if logprobs else 0.0
