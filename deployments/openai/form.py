"""How an answer is written, whole or in chunks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

from deployments.openai import logprobs
from deployments.openai.sse import dumps
from models.events import Finished, Part, Reasoning, Started, Text, TokenLogprob, ToolCall

NO_LOGPROBS = '"logprobs":null'  # of a chunk that tells nothing beside its text


@dataclass(frozen=True, slots=True)
class Heading:
    """What is the same in every chunk of an answer. ``created`` is in seconds since 1970."""

    id: str
    created: int
    model: str
    fingerprint: str

    def fields(self, object: str) -> dict[str, Any]:
        """The leading fields of an answer or a chunk."""
        return {
            "id": self.id,
            "object": object,
            "created": self.created,
            "model": self.model,
            "system_fingerprint": self.fingerprint,
        }


@dataclass(frozen=True, slots=True)
class Shown:
    """What an answer shows beside its text, because its caller asked.

    ``logprobs`` and ``prompt_logprobs`` count the alternatives of each token; None shows none.
    """

    usage: bool = False  # of a stream, in a last chunk
    running_usage: bool = False  # of a stream, in each chunk: up to there
    echo: bool = False
    logprobs: int | None = None
    prompt_logprobs: int | None = None
    token_ids: bool = False
    tokens_as_ids: bool = False  # in logprobs
    reasoning: bool = True
    said: str = ""  # by the message that a chat goes on with, if it is to be shown

    def of_prompt(self, event: Started) -> dict[str, Any]:
        """What an answer tells of its prompt."""
        fields: dict[str, Any] = {}
        if self.prompt_logprobs is not None:
            fields["prompt_logprobs"] = logprobs.of_prompt(event.logprobs, self.prompt_logprobs)
        if self.token_ids:
            fields["prompt_token_ids"] = event.token_ids
        return fields

    def written_of_prompt(self, event: Started) -> str:
        """The same as JSON, with a comma before each field."""
        fields = self.of_prompt(event).items()
        return "".join(f",{dumps(name)}:{dumps(value)}" for name, value in fields)


@dataclass(frozen=True, slots=True)
class Choice:
    """One choice from its first event to its last."""

    started: Started
    parts: Sequence[Part]
    end: Finished

    @property
    def text(self) -> str:
        return "".join(part.delta for part in self.parts if isinstance(part, Text))

    @property
    def reasoning(self) -> str:
        return "".join(part.delta for part in self.parts if isinstance(part, Reasoning))

    @property
    def calls(self) -> Sequence[ToolCall]:
        """Each with all of its arguments."""
        parts = [part for part in self.parts if isinstance(part, ToolCall)]
        arguments = [""] * len({part.index for part in parts})
        for part in parts:
            arguments[part.index] += part.arguments
        heads = (part for part in parts if part.id is not None)
        return [replace(head, arguments=arguments[head.index]) for head in heads]

    @property
    def logprobs(self) -> tuple[TokenLogprob, ...]:
        """Of the tokens that all parts are made of."""
        return tuple(one for part in self.parts for one in part.logprobs)

    @property
    def token_ids(self) -> tuple[int, ...]:
        """All that were generated."""
        said = (token_id for part in self.parts for token_id in part.token_ids)
        return (*said, *self.end.token_ids)


class Totals:
    """Token counts of a whole answer: a prompt counts once, its choices each."""

    def __init__(self) -> None:
        self.prompt_tokens = 0
        self.cached_tokens = 0
        self.completion_tokens = 0
        self.reasoning_tokens = 0
        self._said: dict[tuple[int, int], int] = {}

    def start(self, event: Started) -> None:
        """Counts a prompt."""
        self.prompt_tokens += event.prompt_tokens
        self.cached_tokens += event.cached_tokens

    def say(self, position: int, event: Part) -> None:
        """Counts the tokens of a part, where they are told, before the choice is finished."""
        if not event.token_ids:
            return
        choice = (position, event.choice)
        self._said[choice] = self._said.get(choice, 0) + len(event.token_ids)
        self.completion_tokens += len(event.token_ids)

    def finish(self, position: int, event: Finished) -> None:
        """Counts a choice of the request at this position."""
        said = self._said.pop((position, event.choice), 0)
        self.completion_tokens += event.usage.completion_tokens - said
        self.reasoning_tokens += event.usage.reasoning_tokens

    def usage(self) -> dict[str, Any]:
        """OpenAI's usage object."""
        return {
            "prompt_tokens": self.prompt_tokens,
            "completion_tokens": self.completion_tokens,
            "total_tokens": self.prompt_tokens + self.completion_tokens,
            "prompt_tokens_details": {"cached_tokens": self.cached_tokens},
            "completion_tokens_details": {"reasoning_tokens": self.reasoning_tokens},
        }


class Chunks:
    """The chunks of one stream. All that does not change is written once, here."""

    def __init__(self, heading: Heading, object: str, shown: Shown) -> None:
        head = dumps(heading.fields(object))[:-1]
        self._before = f'data: {head},"choices":[{{"index":'
        self._after = ',"usage":null}\n\n' if shown.usage else "}\n\n"
        self._running = shown.running_usage
        self._usage = f'data: {head},"choices":[],"usage":'

    def choice(self, index: int, fields: str, totals: Totals, beside: str = "") -> bytes:
        """A chunk of one choice; ``fields`` is the JSON inside it after the index.

        ``beside`` is JSON after the choices, with a comma before it.
        """
        after = f',"usage":{dumps(totals.usage())}}}\n\n' if self._running else self._after
        return f"{self._before}{index},{fields}}}]{beside}{after}".encode()

    def usage(self, totals: Totals) -> bytes:
        """The last chunk, without choices."""
        return f"{self._usage}{dumps(totals.usage())}}}\n\n".encode()


class Form(Protocol):
    """One of OpenAI's two dialects; ``index`` is a choice's place in the whole answer."""

    prompt_param: str  # where the prompt is in the request

    def whole(self, choices: Sequence[Choice], totals: Totals) -> Mapping[str, Any]:
        """The answer of a request that does not stream."""
        ...

    def opening(self, index: int, event: Started, totals: Totals) -> bytes:
        """What comes before a choice's text: an event, or nothing."""
        ...

    def text(self, index: int, event: Text, totals: Totals) -> bytes:
        """An event with more text."""
        ...

    def reasoning(self, index: int, event: Reasoning, totals: Totals) -> bytes:
        """An event with more reasoning."""
        ...

    def tool_call(self, index: int, event: ToolCall, totals: Totals) -> bytes:
        """An event with a call, or more of its arguments."""
        ...

    def finish(self, index: int, event: Finished, totals: Totals) -> bytes:
        """The last event of a choice."""
        ...

    def usage(self, totals: Totals) -> bytes:
        """The last event of a stream whose caller asked for it."""
        ...
