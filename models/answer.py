"""From the token ids of one request to its events: the text half of every token engine."""

from __future__ import annotations

from models.events import Event, Finished, FinishReason, Started, Text, Usage
from models.request import GenerateRequest
from models.text.pipeline import Encoded, TextPipeline
from models.token_engine import Admitted, TokenRequest, Tokens


class Answer:
    """Decodes the choices of one request; ``unfinished`` counts those still going.

    A choice that ended, at a stop in the text too, takes no more tokens.
    """

    def __init__(self, text: TextPipeline, encoded: Encoded, request: GenerateRequest) -> None:
        self.unfinished = request.n
        self._stop_ids = encoded.stop_ids
        self._decoders = [
            text.decoder(encoded, min_tokens=request.sampling.min_tokens) for _ in range(request.n)
        ]
        self._ended = [False] * request.n
        self._stopped: list[int] = []
        self._prompt = Admitted(len(encoded.token_ids), 0)

    def events(self, item: Admitted | Tokens) -> list[Event]:
        """``Started``, or at most one ``Text`` and, at the end of the choice, ``Finished``."""
        if isinstance(item, Admitted):
            self._prompt = item
            return [Started(item.prompt_tokens, item.cached_tokens)]
        if self._ended[item.choice]:
            return []
        return self._decode(item)

    def stopped(self) -> list[int]:
        """Choices that ended in the text since the last call, while their tokens still come."""
        stopped, self._stopped = self._stopped, []
        return stopped

    def _decode(self, tokens: Tokens) -> list[Event]:
        choice, decoder = tokens.choice, self._decoders[tokens.choice]
        delta = decoder.push(tokens.token_ids)
        if tokens.finish is not None:
            delta += decoder.flush()
        text: list[Event] = [Text(delta, choice)] if delta else []
        if decoder.stop is not None:
            if tokens.finish is None:
                self._stopped.append(choice)
            return [*text, self._finish(choice, FinishReason.STOP, decoder.stop)]
        if tokens.finish is None:
            return text
        if tokens.stop_id is None:
            return [*text, self._finish(choice, tokens.finish, None)]
        stop = self._stop_ids[tokens.stop_id]
        return [*text, self._finish(choice, tokens.finish, stop, undecoded=1)]

    def _finish(
        self, choice: int, reason: FinishReason, stop: str | int | None, undecoded: int = 0
    ) -> Finished:
        self._ended[choice] = True
        self.unfinished -= 1
        prompt = self._prompt
        completion = self._decoders[choice].tokens + undecoded
        usage = Usage(prompt.prompt_tokens, completion, prompt.cached_tokens)
        return Finished(reason, usage, stop, choice)


def token_request(request: GenerateRequest, encoded: Encoded) -> TokenRequest:
    """The half of a request that needs no text."""
    return TokenRequest(
        id=request.id,
        token_ids=encoded.token_ids,
        sampling=request.sampling,
        stop_ids=frozenset(encoded.stop_ids),
        n=request.n,
    )
