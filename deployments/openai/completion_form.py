"""The answers of ``/v1/completions``, from the events of a generation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from deployments.openai import logprobs
from deployments.openai.form import NO_LOGPROBS, Choice, Chunks, Heading, Shown, Totals
from deployments.openai.sse import dumps, quote
from models.events import Finished, Reasoning, Started, Text, TokenLogprob, ToolCall


class CompletionForm:
    """Writes ``text_completion``, whole and in chunks.

    Logprobs are of the tokens that make the text and of the end of the sequence; those of a stop
    are shown where token ids are. With ``echo`` the prompt's come first, and the first is null.
    """

    prompt_param = "prompt"

    def __init__(self, heading: Heading, shown: Shown) -> None:
        self._heading = heading
        self._shown = shown
        self._chunks = Chunks(heading, "text_completion", shown)
        self._plain = shown.logprobs is None and not shown.token_ids
        self._before: dict[int, int] = {}  # characters echoed, by choice

    def whole(self, choices: Sequence[Choice], totals: Totals) -> Mapping[str, Any]:
        return {
            **self._heading.fields("text_completion"),
            "choices": [self._choice(i, choice) for i, choice in enumerate(choices)],
            "usage": totals.usage(),
        }

    def opening(self, index: int, event: Started, totals: Totals) -> bytes:
        self._before[index] = len(event.text)
        prompt = self._shown.written_of_prompt(event)
        if not prompt and not self._shown.echo:
            return b""
        entries = event.logprobs if self._shown.echo else ()
        beside = self._beside(entries, (), 0)
        fields = f'"text":{quote(event.text)},{beside},"finish_reason":null{prompt}'
        return self._chunks.choice(index, fields, totals)

    def text(self, index: int, event: Text, totals: Totals) -> bytes:
        beside = self._beside(event.logprobs, event.token_ids, self._before.get(index, 0))
        fields = f'"text":{quote(event.delta)},{beside},"finish_reason":null'
        return self._chunks.choice(index, fields, totals)

    def reasoning(self, index: int, event: Reasoning, totals: Totals) -> bytes:
        return b""  # a chat's only

    def tool_call(self, index: int, event: ToolCall, totals: Totals) -> bytes:
        return b""  # a chat's only

    def finish(self, index: int, event: Finished, totals: Totals) -> bytes:
        ends = f'"finish_reason":"{event.reason}","stop_reason":{dumps(event.stop)}'
        before = self._before.get(index, 0)
        beside = self._beside(self._of_end(event), event.token_ids, before)
        return self._chunks.choice(index, f'"text":"",{beside},{ends}', totals)

    def usage(self, totals: Totals) -> bytes:
        return self._chunks.usage(totals)

    def _choice(self, index: int, choice: Choice) -> dict[str, Any]:
        return {
            "index": index,
            "text": choice.started.text + choice.text,
            "logprobs": self._whole_logprobs(choice),
            "finish_reason": choice.end.reason,
            "stop_reason": choice.end.stop,
            **({"token_ids": choice.token_ids} if self._shown.token_ids else {}),
            **self._shown.of_prompt(choice.started),
        }

    def _whole_logprobs(self, choice: Choice) -> dict[str, Any] | None:
        top = self._shown.logprobs
        if top is None:
            return None
        prompt = choice.started.logprobs if self._shown.echo else ()
        answer = choice.logprobs + self._of_end(choice.end)
        ids = self._shown.tokens_as_ids
        first = logprobs.of_completion(prompt, top, 0, ids=ids)
        rest = logprobs.of_completion(answer, top, len(choice.started.text), ids=ids)
        return {key: first[key] + rest[key] for key in first}

    def _of_end(self, event: Finished) -> tuple[TokenLogprob, ...]:
        return event.logprobs if event.stop is None or self._shown.token_ids else ()

    def _beside(
        self, entries: Sequence[TokenLogprob], token_ids: Sequence[int], before: int
    ) -> str:
        """The fields of a chunk beside its text."""
        if self._plain:
            return NO_LOGPROBS
        top, shown = self._shown.logprobs, None
        if entries and top is not None:
            shown = logprobs.of_completion(entries, top, before, ids=self._shown.tokens_as_ids)
        ids = f',"token_ids":{dumps(token_ids)}' if self._shown.token_ids else ""
        return f'"logprobs":{dumps(shown)}{ids}'
