"""What a request wants to be told of an answer's tokens: each once, in order."""

from __future__ import annotations

from models.events import TokenLogprob
from models.logprobs import token_logprobs
from models.request import GenerateRequest
from models.schedule.sequence import Scores
from models.text.alignment import Alignment
from models.text.pipeline import TextPipeline
from models.tokens import Tokens

Told = tuple[tuple[TokenLogprob, ...], tuple[int, ...]]


class Ledger:
    """Keeps the ids and scores of one choice until the text that they make has come out."""

    def __init__(self, text: TextPipeline, request: GenerateRequest) -> None:
        self._text = text
        self._asks_logprobs = request.sampling.logprobs is not None
        self._asks_ids = request.return_token_ids
        self._ids: list[int] = []
        self._scores: list[Scores | None] = []
        self._told = 0

    @property
    def asked(self) -> bool:
        """Whether anything is to be told."""
        return self._asks_logprobs or self._asks_ids

    def note(self, tokens: Tokens) -> None:
        """More tokens, the one that ended the answer by its id included."""
        if self.asked:
            stop = () if tokens.stop_id is None else (tokens.stop_id,)
            ids = [*tokens.token_ids, *stop]
            self._ids += ids
            self._scores += tokens.scores or [None] * len(ids)

    def tell(self, end: int, alignment: Alignment | None) -> Told:
        """Logprobs and ids, as far as asked for, of the tokens up to ``end`` not told before."""
        if alignment is None or end <= self._told:
            return (), ()
        span = slice(self._told, end)
        self._told = end
        ids = self._ids[span]
        logprobs: tuple[TokenLogprob, ...] = ()
        if self._asks_logprobs:
            offsets = [alignment.offset(i) for i in range(span.start, end)]
            logprobs = token_logprobs(self._text, ids, self._scores[span], offsets)
        return logprobs, tuple(ids) if self._asks_ids else ()
