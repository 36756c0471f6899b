"""From the token ids of one request to its events: the text half of every token engine."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from models.events import (
    Event,
    Finished,
    FinishReason,
    Part,
    Reasoning,
    Started,
    Text,
    TokenLogprob,
    ToolCall,
    Usage,
)
from models.ledger import Ledger
from models.logprobs import token_logprobs
from models.request import GenerateRequest, TextPrompt
from models.text.encoded import Encoded
from models.text.pipeline import TextPipeline
from models.tokens import Admitted, TokenRequest, Tokens

# How an answer ends that was asked for a call of one certain function, as OpenAI has it.
NAMED_CALL = FinishReason.STOP


class Answer:
    """Decodes the choices of one request; ``unfinished`` counts those still going.

    A choice that ended, at a stop in the text too, takes no more tokens.
    """

    def __init__(self, text: TextPipeline, encoded: Encoded, request: GenerateRequest) -> None:
        self.unfinished = request.n
        self._text = text
        self._encoded = encoded
        self._request = request
        self._choices = [_Choice(i, text, encoded, request) for i in range(request.n)]
        self._stopped: list[int] = []
        self._prompt = Admitted(len(encoded.token_ids), 0)

    def events(self, item: Admitted | Tokens) -> list[Event]:
        """``Started``, or what the choice says and, at its end, ``Finished``."""
        if isinstance(item, Admitted):
            self._prompt = item
            return [self._start(item)]
        choice = self._choices[item.choice]
        if choice.ended:
            return []
        events: list[Event] = [*choice.read(item)]
        if choice.ended:
            events.append(choice.finished(item, self._prompt))
            self.unfinished -= 1
            self._stopped += [item.choice] if item.finish is None else []
        return events

    def expire(self) -> list[Event]:
        """Ends by ``LENGTH`` all choices that still go."""
        ends = [Tokens(i, (), FinishReason.LENGTH) for i in range(len(self._choices))]
        return [event for end in ends for event in self.events(end)]

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


def token_request(request: GenerateRequest, encoded: Encoded) -> TokenRequest:
    """The half of a request that needs no text."""
    return TokenRequest(
        id=request.id,
        token_ids=encoded.token_ids,
        sampling=request.sampling,
        stop_ids=frozenset(encoded.stop_ids),
        n=request.n,
        grammar=encoded.grammar,
        bad_words=encoded.bad_words,
        thinking=encoded.thinking,
        timeout_s=request.timeout_s,
        priority=request.priority,
        user=request.user,
        cache_key=request.cache_key,
        cache_salt=request.cache_salt,
        adapter=request.adapter,
    )


class _Choice:
    """One answer as it grows: what its tokens say, and what is to be told of those tokens."""

    def __init__(
        self, index: int, text: TextPipeline, encoded: Encoded, request: GenerateRequest
    ) -> None:
        self.ended = False
        self._index = index
        self._stop_ids = encoded.stop_ids
        self._include_stop = request.include_stop
        self._ledger = Ledger(text, request)
        self._decoder = text.decoder(
            encoded,
            min_tokens=request.sampling.min_tokens,
            keep_stop=request.include_stop,
            skip_special=request.skip_special_tokens,
            aligned=self._ledger.asked,
        )
        self._parser = text.parser(request, encoded, index)
        self._named = request.tool_choice.name is not None
        self._reasoning_tokens = 0

    def read(self, tokens: Tokens) -> list[Part]:
        """What the tokens say. Then the choice may have ended."""
        self._ledger.note(tokens)
        parts = self._parts(tokens.token_ids)
        if tokens.finish is not None:
            parts += self._part(self._last(tokens))
        self.ended = tokens.finish is not None or self._is_done()
        if self.ended and self._parser is not None:
            parts += self._parser.flush()
        return self._told(joined(parts))

    def finished(self, tokens: Tokens, prompt: Admitted) -> Finished:
        """The last event, after the last tokens."""
        stop: str | int | None = self._decoder.stop
        completion = self._decoder.tokens
        if tokens.stop_id is not None and not self._is_done():
            stop = self._stop_ids[tokens.stop_id]
            completion += not self._include_stop  # else it was decoded with the others
        usage = Usage(
            prompt.prompt_tokens, completion, prompt.cached_tokens, self._reasoning_tokens
        )
        logprobs, token_ids = self._ledger.tell(completion, self._decoder.alignment)
        reason = self._reason(tokens.finish)
        return Finished(reason, usage, stop, self._index, logprobs, token_ids)

    def _told(self, parts: list[Part]) -> list[Part]:
        """The last part tells of all tokens whose text has come out."""
        alignment = self._decoder.alignment
        if parts and alignment is not None:
            logprobs, token_ids = self._ledger.tell(alignment.told, alignment)
            parts[-1] = replace(parts[-1], logprobs=logprobs, token_ids=token_ids)
        return parts

    def _is_done(self) -> bool:
        """Whether it ended in the text."""
        parser = self._parser
        return self._decoder.stop is not None or (parser is not None and parser.ended)

    def _last(self, tokens: Tokens) -> str:
        """What is held when no more tokens come, and the stop that was one token if it is kept."""
        if tokens.stop_id is None or not self._include_stop or self._is_done():
            return self._decoder.flush()
        stop = self._stop_ids[tokens.stop_id]
        if isinstance(stop, str):
            return self._decoder.flush() + self._decoder.add(stop)
        return self._decoder.push((tokens.stop_id,)) + self._decoder.flush()

    def _reason(self, finish: FinishReason | None) -> FinishReason:
        reason = FinishReason.STOP if finish is None or self._is_done() else finish
        if reason == FinishReason.STOP and self._parser is not None and self._parser.calls:
            return NAMED_CALL if self._named else FinishReason.TOOL_CALLS
        return reason

    def _parts(self, token_ids: Sequence[int]) -> list[Part]:
        if self._parser is None:
            return self._part(self._decoder.push(token_ids))
        parts: list[Part] = []
        for token_id in token_ids:
            if not self._is_done():
                inside = self._parser.inside
                parts += self._part(self._decoder.push((token_id,)))
                self._reasoning_tokens += inside and self._parser.inside
        return parts

    def _part(self, text: str) -> list[Part]:
        if self._parser is not None:
            return list(self._parser.push(text))
        return [Text(text, self._index)] if text else []


def joined(parts: Iterable[Part]) -> list[Part]:
    """The same with fewer parts: those that go on with the one before are one with it."""
    if isinstance(parts, list) and len(parts) < 2:
        return parts
    result: list[Part] = []
    for part in parts:
        whole = _together(result[-1], part) if result else None
        if whole is None:
            result.append(part)
        else:
            result[-1] = whole
    return result


def _together(one: Part, more: Part) -> Part | None:
    match one, more:
        case Text(), Text():
            return replace(one, delta=one.delta + more.delta)
        case Reasoning(), Reasoning():
            return replace(one, delta=one.delta + more.delta)
        case ToolCall(), ToolCall(id=None):
            return replace(one, arguments=one.arguments + more.arguments)
    return None
