"""What a model's scores of token ids tell a reader: tokens as text and bytes."""

from __future__ import annotations

from collections.abc import Sequence

from models.events import TokenLogprob, TopLogprob
from models.schedule.sequence import Scores
from models.text.pipeline import TextPipeline


def token_logprobs(
    text: TextPipeline,
    token_ids: Sequence[int],
    scores: Sequence[Scores | None],
    offsets: Sequence[int],
) -> tuple[TokenLogprob, ...]:
    """One for each token; without scores where the model cannot tell, at the start of a prompt."""
    rows = zip(token_ids, scores, offsets, strict=True)
    return tuple(_token_logprob(text, *row) for row in rows)


def _token_logprob(
    text: TextPipeline, token_id: int, scores: Scores | None, offset: int
) -> TokenLogprob:
    token, spelled = text.spell(token_id)
    if scores is None:
        return TokenLogprob(token_id, token, spelled, None, offset=offset)
    top = tuple(TopLogprob(id, *text.spell(id), logprob) for id, logprob in scores.top)
    return TokenLogprob(token_id, token, spelled, scores.logprob, top, scores.rank, offset)
