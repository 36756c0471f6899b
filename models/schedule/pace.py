"""How much of the prompts a step may compute beside those who wait for their next token."""

from __future__ import annotations

from models.schedule.step_time import Load, StepTime

LEAST_TOKENS = 16  # of prompts in every step, however long it takes
FIRST_TOKENS = 128  # of prompts, before anything is known
DRAFT_SHARE = 0.5  # of what decoding takes goes to drafts at most
LEAST_SHARE = 0.5  # of what decoding takes goes to prompts, however long that is
AUTO_TOKENS = 512  # of prompts fill a step well; the time for them, within:
AUTO_SECONDS = (0.05, 0.17)
ALONE_SECONDS = 2.0  # of a step while nobody decodes: who comes meanwhile waits for its end
ALONE_TIMES = 4.0  # what a step takes as such, at least: the rest is for prompts


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

    @property
    def alone(self) -> float:
        """Seconds of a step in which nobody decodes."""
        return max(ALONE_SECONDS, ALONE_TIMES * self.time.predict(Load()))

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
