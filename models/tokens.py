"""What a token engine is asked and answers: token ids in, token ids out."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from models.events import FinishReason
from models.request import ANYBODY, Grammar, SamplingParams, ThinkingLimit, User
from models.schedule.sequence import Scores


@dataclass(frozen=True, slots=True)
class TokenRequest:
    """A prompt of token ids, ``n`` choices of an answer, and the ids that end one.

    ``bad_words`` are those of ``sampling`` as tokens; see ``GenerateRequest`` for the last five.
    """

    id: str
    token_ids: tuple[int, ...]
    sampling: SamplingParams
    stop_ids: frozenset[int]
    n: int = 1
    grammar: Grammar | None = None
    bad_words: tuple[tuple[int, ...], ...] = ()
    thinking: ThinkingLimit | None = None
    timeout_s: float | None = None
    priority: int = 0
    user: User = ANYBODY
    cache_key: str | None = None
    cache_salt: str = ""
    adapter: str | None = None


@dataclass(frozen=True, slots=True)
class Admitted:
    """The first step of the request is done; token counts of its prompt.

    ``scores``, if asked for, are of all prompt tokens but the first.
    """

    prompt_tokens: int
    cached_tokens: int
    scores: tuple[Scores, ...] = ()


@dataclass(frozen=True, slots=True)
class Tokens:
    """More tokens of one choice: all that is ready. The last one has ``finish``.

    ``stop_id`` ended the choice: it is not among ``token_ids`` but was generated all the same.
    ``scores``, if asked for, are of ``token_ids`` and of ``stop_id``.
    """

    choice: int
    token_ids: tuple[int, ...]
    finish: FinishReason | None = None
    stop_id: int | None = None
    scores: tuple[Scores, ...] = ()

    def after(self, earlier: Tokens) -> Tokens:
        """Those and these in one."""
        return replace(
            self,
            token_ids=earlier.token_ids + self.token_ids,
            scores=earlier.scores + self.scores,
        )


Take = Callable[[Admitted | Tokens], None]


def one_of_each_choice(items: Iterable[Tokens]) -> list[Tokens]:
    """All tokens of a choice as one item, in the order in which the choices came."""
    choices: dict[int, Tokens] = {}
    for item in items:
        earlier = choices.get(item.choice)
        choices[item.choice] = item.after(earlier) if earlier else item
    return list(choices.values())
