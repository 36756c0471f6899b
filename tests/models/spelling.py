"""A plain model that spells what it is told to, one token a step: real, but for its thinking."""

from __future__ import annotations

import threading
from collections.abc import Sequence

Spelled = tuple[int, ...]


class Spelling:
    """Answers with one of ``answers``, each as likely, and then with ``end`` for ever.

    A paced one waits before each token until ``let`` allows it. Every prefill begins an answer,
    so nothing may preempt its sequences. ``made`` counts tokens.
    """

    max_context = 512

    def __init__(
        self, *answers: Sequence[int], end: int, vocab_size: int, paced: bool = False
    ) -> None:
        self.vocab_size = vocab_size
        self.made = 0
        self._answers = [tuple(answer) for answer in answers]
        self._end = end
        self._turns = threading.Semaphore(0) if paced else None

    def let(self, count: int) -> None:
        """Allows so many more tokens."""
        if self._turns is not None:
            self._turns.release(count)

    def prefill(self, tokens: list[int]) -> tuple[Spelled, list[float]]:
        return (), self._logits(())

    def decode(self, state: Spelled, token: int) -> tuple[Spelled, list[float]]:
        spelled = (*state, token)
        return spelled, self._logits(spelled)

    def _logits(self, spelled: Spelled) -> list[float]:
        if self._turns is not None:
            self._turns.acquire()
        self.made += 1
        likely = self._likely(spelled)
        return [0.0 if token in likely else -100.0 for token in range(self.vocab_size)]

    def _likely(self, spelled: Spelled) -> set[int]:
        count = len(spelled)
        begun = [answer for answer in self._answers if answer[:count] == spelled]
        return {(*answer, self._end)[count] for answer in begun} or {self._end}
