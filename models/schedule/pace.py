"""How much of the prompts a step may compute beside those who wait for their next token."""

from __future__ import annotations

from models.schedule.step_time import Load, StepTime

LEAST_TOKENS = 16  # of prompts in every step, however long it takes
FIRST_TOKENS = 128  # beside those who decode, before anything is known
DRAFT_SHARE = 0.5  # of what decoding takes goes to drafts at most
LEAST_SHARE = 0.5  # of what decoding takes goes to prompts, however long that is
AUTO_TOKENS = 512  # of prompts fill a step well; the time for them, within:
AUTO_SECONDS = (0.05, 0.17)


class Pace:
    """``step_s`` is how long a step should take while somebody decodes; None follows the model."""

    def __init__(self, step_s: float | None = None) -> None:
        self.time = StepTime()
        self._step_s = step_s

    def target(self, rows: int) -> float:
        """Seconds of a step in which ``rows`` sequences decode and others read their prompts."""
        low, high = AUTO_SECONDS
        filled = self.time.predict(Load(rows, AUTO_TOKENS))
        wish = min(max(filled, low), high) if self._step_s is None else self._step_s
        return max(wish, self.time.predict(Load(rows)) * (1 + LEAST_SHARE))

    def drafts(self, rows: int) -> int:
        """Drafted tokens worth verifying in a step in which ``rows`` sequences decode."""
        if not self.time.known:
            return 0
        return self.time.fitting(DRAFT_SHARE * self.time.predict(Load(rows)), 0)

    def beside(self, rows: int) -> int:
        """Tokens from the beginning of a prompt that fit beside ``rows`` that decode."""
        if not self.time.known:
            return FIRST_TOKENS
        left = self.target(rows) - self.time.predict(Load(rows))
        return max(self.time.fitting(left, 0), LEAST_TOKENS)
