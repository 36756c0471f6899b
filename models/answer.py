"""From the token ids of one request to its events: the text half of every token engine."""

from __future__ import annotations

from models.events import Event, Finished, FinishReason, Started, Text, TokenLogprob, Usage
from models.logprobs import token_logprobs
from models.request import GenerateRequest, TextPrompt
from models.schedule.sequence import Scores
from models.text.pipeline import Encoded, TextPipeline
from models.token_engine import Admitted, TokenRequest, Tokens


class Answer:
    """Decodes the choices of one request; ``unfinished`` counts those still going.

    A choice that ended, at a stop in the text too, takes no more tokens.
    """

    def __init__(self, text: TextPipeline, encoded: Encoded, request: GenerateRequest) -> None:
        self.unfinished = request.n
        self._text = text
        self._encoded = encoded
        self._request = request
        self._choices = [_Choice(text, encoded, request) for _ in range(request.n)]
        self._stopped: list[int] = []
        self._prompt = Admitted(len(encoded.token_ids), 0)

    def events(self, item: Admitted | Tokens) -> list[Event]:
        """``Started``, or at most one ``Text`` and, at the end of the choice, ``Finished``."""
        if isinstance(item, Admitted):
            self._prompt = item
            return [self._start(item)]
        if self._choices[item.choice].ended:
            return []
        return self._decode(item)

    def stopped(self) -> list[int]:
        """Choices that ended in the text since the last call, while their tokens still come."""
        stopped, self._stopped = self._stopped, []
        return stopped

    def _start(self, prompt: Admitted) -> Started:
        ids = self._encoded.token_ids
        echo = ""
        logprobs: tuple[TokenLogprob, ...] = ()
        offsets = [0] * len(ids)
        if self._request.echo:
            echo, offsets = self._text.echo(self._encoded, self._sent())
        if self._request.sampling.prompt_logprobs is not None:
            logprobs = token_logprobs(self._text, ids, [None, *prompt.scores], offsets)
        shown = ids if self._request.return_token_ids else ()
        return Started(prompt.prompt_tokens, prompt.cached_tokens, echo, shown, logprobs)

    def _sent(self) -> str | None:
        """The prompt's text as its caller wrote it, where all of it was read."""
        prompt, limit = self._request.prompt, self._request.truncate_prompt_tokens
        whole = limit is None or len(self._encoded.token_ids) < limit
        return prompt.text if isinstance(prompt, TextPrompt) and whole else None

    def _decode(self, tokens: Tokens) -> list[Event]:
        choice = self._choices[tokens.choice]
        delta = choice.take(tokens)
        logprobs, token_ids = choice.told()
        text: list[Event] = []
        if delta:
            text.append(Text(delta, tokens.choice, logprobs, token_ids))
        if choice.decoder.stop is not None:
            if tokens.finish is None:
                self._stopped.append(tokens.choice)
            return [*text, self._finish(tokens.choice, FinishReason.STOP, choice.decoder.stop)]
        if tokens.finish is None:
            return text
        stop = None if tokens.stop_id is None else self._encoded.stop_ids[tokens.stop_id]
        return [*text, self._finish(tokens.choice, tokens.finish, stop)]

    def _finish(self, index: int, reason: FinishReason, stop: str | int | None) -> Finished:
        self.unfinished -= 1
        prompt = self._prompt
        choice = self._choices[index]
        logprobs, token_ids = choice.end()
        usage = Usage(prompt.prompt_tokens, choice.tokens, prompt.cached_tokens)
        return Finished(reason, usage, stop, index, logprobs, token_ids)


def token_request(request: GenerateRequest, encoded: Encoded) -> TokenRequest:
    """The half of a request that needs no text."""
    return TokenRequest(
        id=request.id,
        token_ids=encoded.token_ids,
        sampling=request.sampling,
        stop_ids=frozenset(encoded.stop_ids),
        n=request.n,
        bad_words=encoded.bad_words,
        timeout_s=request.timeout_s,
        priority=request.priority,
    )


class _Choice:
    """One answer: its decoder, and what it must tell of its tokens once their text is out."""

    def __init__(self, text: TextPipeline, encoded: Encoded, request: GenerateRequest) -> None:
        self.ended = False
        self.tokens = 0  # generated, up to and including what ended the answer
        self._text = text
        self._stop_ids = encoded.stop_ids
        self._include_stop = request.include_stop
        self._asks_logprobs = request.sampling.logprobs is not None
        self._asks_ids = request.return_token_ids
        self._ids: list[int] = []
        self._scores: list[Scores | None] = []
        self._told = 0
        self.decoder = text.decoder(
            encoded,
            min_tokens=request.sampling.min_tokens,
            keep_stop=request.include_stop,
            skip_special=request.skip_special_tokens,
            aligned=self._asks_logprobs or self._asks_ids,
        )

    def take(self, tokens: Tokens) -> str:
        """The text that these tokens bring, and at the end all that was held."""
        self._note(tokens)
        delta = self.decoder.push(tokens.token_ids)
        if tokens.finish is not None:
            delta += self._last(tokens)
        self.tokens = self.decoder.tokens
        if tokens.stop_id is not None and self.decoder.stop is None:
            self.tokens = self.decoder.tokens + (not self._include_stop)
        return delta

    def told(self) -> tuple[tuple[TokenLogprob, ...], tuple[int, ...]]:
        """Logprobs and ids, as far as asked for, of the tokens whose text came out last."""
        alignment = self.decoder.alignment
        return ((), ()) if alignment is None else self._tell(alignment.told)

    def end(self) -> tuple[tuple[TokenLogprob, ...], tuple[int, ...]]:
        """The same for those that are left."""
        self.ended = True
        return self._tell(self.tokens)

    def _note(self, tokens: Tokens) -> None:
        if self.decoder.alignment is None:
            return
        ids = [*tokens.token_ids, *([] if tokens.stop_id is None else [tokens.stop_id])]
        self._ids += ids
        self._scores += tokens.scores or [None] * len(ids)

    def _last(self, tokens: Tokens) -> str:
        """What is held when no more tokens come, and the stop that was one token if it is kept."""
        if tokens.stop_id is None or not self._include_stop or self.decoder.stop is not None:
            return self.decoder.flush()
        stop = self._stop_ids[tokens.stop_id]
        if isinstance(stop, str):
            return self.decoder.flush() + self.decoder.add(stop)
        return self.decoder.push((tokens.stop_id,)) + self.decoder.flush()

    def _tell(self, end: int) -> tuple[tuple[TokenLogprob, ...], tuple[int, ...]]:
        alignment = self.decoder.alignment
        if alignment is None or end <= self._told:
            return (), ()
        span = slice(self._told, end)
        self._told = end
        ids = self._ids[span]
        offsets = [alignment.offset(i) for i in range(span.start, end)]
        logprobs: tuple[TokenLogprob, ...] = ()
        if self._asks_logprobs:
            logprobs = token_logprobs(self._text, ids, self._scores[span], offsets)
        return logprobs, tuple(ids) if self._asks_ids else ()
