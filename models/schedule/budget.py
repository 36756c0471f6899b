"""What one step may still compute: so many tokens, so many to be scored, and so much time."""

from __future__ import annotations

from models.schedule.pace import FIRST_TOKENS, LEAST_TOKENS, Pace
from models.schedule.sequence import Chunk, Sequence
from models.schedule.step_time import Load

# Each takes a row of logits as wide as the vocabulary: those of prompts, and drafted ones.
SCORED_TOKENS = 256
STRETCH = 1.125  # of what fits, for a prompt that is done by it


class Budget:
    """What is left of a step, and the chunks that took the rest: first those that decode.

    While somebody is ``decoding`` prompts get the time that is left, else the first of them gets
    the time of a long step, and others join it as far as that of an ordinary one allows.
    """

    def __init__(self, pace: Pace, tokens: int, *, decoding: bool) -> None:
        self.chunks: list[Chunk] = []
        self.prompt_tokens = 0
        self._pace = pace
        self._tokens = tokens
        self._scored = SCORED_TOKENS
        self._decoding = decoding
        self._load = Load()

    def of(self, sequence: Sequence) -> int:
        """Tokens that a sequence may compute; 0: none in this step."""
        most = min(self._tokens, self._scored) if sequence.unscored else self._tokens
        return most if sequence.decodes else min(most, self._timely(sequence))

    def drafts(self, rows: int) -> int:
        """Tokens that may be drafted for ``rows`` that decode: half of what is left, at most."""
        left = min(self._tokens - rows, self._scored)
        return max(min(left // 2, self._pace.drafts(rows)), 0)

    def spend(self, chunk: Chunk) -> None:
        self.chunks.append(chunk)
        self._tokens -= chunk.count
        self._scored -= len(chunk.targets) + len(chunk.draft)
        self._load.add(chunk)
        self.prompt_tokens += 0 if chunk.decodes else chunk.count

    def _timely(self, sequence: Sequence) -> int:
        if not self.prompt_tokens:
            seconds = self._pace.target(self._load.rows) if self._decoding else self._pace.alone
            return max(self._fitting(sequence, seconds), LEAST_TOKENS)
        fitting = self._fitting(sequence, self._pace.target(self._load.rows))
        enough = fitting >= min(LEAST_TOKENS, sequence.length - sequence.computed)
        return fitting if enough else 0

    def _fitting(self, sequence: Sequence, seconds: float) -> int:
        """What fits into the time that is left of them, or the whole rest if it nearly does."""
        time = self._pace.time
        if not time.known:
            return FIRST_TOKENS - self.prompt_tokens
        fitting = time.fitting(seconds - time.predict(self._load), sequence.computed)
        rest = sequence.length - sequence.computed
        return rest if rest <= STRETCH * fitting else fitting
