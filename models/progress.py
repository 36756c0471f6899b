"""What a step brought one sequence, and how a token ends its answer."""

from __future__ import annotations

from dataclasses import dataclass

from models.errors import EngineError
from models.events import FinishReason
from models.schedule.sequence import Chunk, Scores, Sequence


@dataclass(slots=True)
class Progress:
    """Empty while the sequence waits, prefills, or after its end.

    ``scores``, if asked for, are of ``token_ids`` and of ``stop_id``.
    """

    token_ids: tuple[int, ...] = ()
    finish: FinishReason | None = None
    stop_id: int | None = None  # the id that ended it, not among ``token_ids``
    error: EngineError | None = None
    scores: tuple[Scores, ...] = ()

    def take(self, chunk: Chunk, token: int, scores: tuple[Scores, ...]) -> None:
        """A token that a step over ``chunk`` sampled; what its grammar says of it is known."""
        sequence = chunk.sequence
        ruling = chunk.ruling and chunk.ruling.result()
        if ruling and ruling.error:
            self.error = ruling.error
        elif sequence.sampling.max_tokens == 0:
            self.finish = FinishReason.LENGTH
        elif ruling and ruling.finished and token not in sequence.stop_ids:
            self.finish = FinishReason.STOP
        else:
            self.scores += scores
            self._append(sequence, token)

    def _append(self, sequence: Sequence, token: int) -> None:
        sequence.tokens.append(token)
        if token in sequence.stop_ids:
            self.finish, self.stop_id = FinishReason.STOP, token
            return
        self.token_ids += (token,)
        if len(sequence.tokens) >= sequence.max_length:
            self.finish = FinishReason.LENGTH
        elif sequence.constraint:
            sequence.constraint.advance(token)
