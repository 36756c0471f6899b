"""From the token ids of one request to its events: the text half of every token engine."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from models.events import Event, Finished, FinishReason, Reasoning, Started, Text, ToolCall, Usage
from models.request import GenerateRequest
from models.text.pipeline import Encoded, TextPipeline
from models.token_engine import Admitted, TokenRequest, Tokens

Part = Reasoning | Text | ToolCall

# How an answer ends that was asked for a call of one certain function, as OpenAI has it.
NAMED_CALL = FinishReason.STOP


class Answer:
    """Decodes the choices of one request; ``unfinished`` counts those still going.

    A choice that ended, at a stop in the text too, takes no more tokens.
    """

    def __init__(self, text: TextPipeline, encoded: Encoded, request: GenerateRequest) -> None:
        self.unfinished = request.n
        self._choices = [_Choice(i, text, encoded, request) for i in range(request.n)]
        self._stopped: list[int] = []
        self._prompt = Admitted(len(encoded.token_ids), 0)

    def events(self, item: Admitted | Tokens) -> list[Event]:
        """``Started``, or what the choice says and, at its end, ``Finished``."""
        if isinstance(item, Admitted):
            self._prompt = item
            return [Started(item.prompt_tokens, item.cached_tokens)]
        choice = self._choices[item.choice]
        if choice.ended:
            return []
        events: list[Event] = [*joined(choice.read(item))]
        if choice.ended:
            events.append(choice.finished(item, self._prompt))
            self.unfinished -= 1
            self._stopped += [item.choice] if item.finish is None else []
        return events

    def stopped(self) -> list[int]:
        """Choices that ended in the text since the last call, while their tokens still come."""
        stopped, self._stopped = self._stopped, []
        return stopped


def token_request(request: GenerateRequest, encoded: Encoded) -> TokenRequest:
    """The half of a request that needs no text."""
    return TokenRequest(
        id=request.id,
        token_ids=encoded.token_ids,
        sampling=request.sampling,
        stop_ids=frozenset(encoded.stop_ids),
        n=request.n,
        grammar=encoded.grammar,
    )


class _Choice:
    """One answer as it grows."""

    def __init__(
        self, index: int, text: TextPipeline, encoded: Encoded, request: GenerateRequest
    ) -> None:
        self.ended = False
        self._index = index
        self._stop_ids = encoded.stop_ids
        self._decoder = text.decoder(encoded, min_tokens=request.sampling.min_tokens)
        self._parser = text.parser(request, encoded, index)
        self._named = request.tool_choice.name is not None
        self._reasoning_tokens = 0

    def read(self, tokens: Tokens) -> list[Part]:
        """What the tokens say. Then the choice may have ended."""
        parts = self._parts(tokens.token_ids)
        if tokens.finish is not None:
            parts += self._part(self._decoder.flush())
        self.ended = tokens.finish is not None or self._is_done()
        if self.ended and self._parser is not None:
            parts += self._parser.flush()
        return parts

    def finished(self, tokens: Tokens, prompt: Admitted) -> Finished:
        """The last event, after the last tokens."""
        stop: str | int | None = self._decoder.stop
        completion = self._decoder.tokens
        if tokens.stop_id is not None and not self._is_done():
            stop = self._stop_ids[tokens.stop_id]
            completion += 1
        usage = Usage(
            prompt.prompt_tokens, completion, prompt.cached_tokens, self._reasoning_tokens
        )
        return Finished(self._reason(tokens.finish), usage, stop, self._index)

    def _is_done(self) -> bool:
        """Whether it ended in the text."""
        parser = self._parser
        return self._decoder.stop is not None or (parser is not None and parser.ended)

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
                self._reasoning_tokens += inside or self._parser.inside
        return parts

    def _part(self, text: str) -> list[Part]:
        if self._parser is not None:
            return list(self._parser.push(text))
        return [Text(text, self._index)] if text else []


def joined(parts: Iterable[Part]) -> list[Part]:
    """The same with fewer parts: those that go on with the one before are one with it."""
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
