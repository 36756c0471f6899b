"""``/v1/completions``: from its JSON to generation requests, from events to its answers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

from pydantic import Field

from deployments.openai import logprobs
from deployments.openai.call import Call, GenerationBody, Integer, make_call, validated
from deployments.openai.errors import invalid
from deployments.openai.form import NO_LOGPROBS, Choice, Chunks, Heading, Shown, Totals
from deployments.openai.parameters import COMPLETIONS_NEUTRAL, check_extras
from deployments.openai.sse import dumps, quote
from deployments.openai.structured import take_grammar
from deployments.openai.token_ids import is_token, token_prompt, wrong_prompt
from models.events import Finished, Reasoning, Started, Text, TokenLogprob, ToolCall
from models.request import MAX_CHOICES, Prompt, TextPrompt

MAX_TOKENS = 16  # OpenAI's default
MAX_PROMPTS = 2048


class CompletionsBody(GenerationBody):
    prompt: Any = None
    max_tokens: Annotated[int, Field(ge=0, lt=2**63)] | None = None
    best_of: Integer | None = None
    echo: bool | None = None
    logprobs: Integer | None = None
    suffix: str | None = None


def parse(data: Mapping[str, Any], id: str) -> Call:
    """Raises ``ApiError`` or ``Invalid``."""
    body = validated(CompletionsBody, data)
    extras = dict(body.model_extra or {})
    grammar = take_grammar(extras)
    check_extras(extras, COMPLETIONS_NEUTRAL)
    limit = MAX_TOKENS if body.max_tokens is None else body.max_tokens
    return make_call(
        body,
        id,
        _prompts(body),
        limit,
        grammar=grammar,
        logprobs=body.logprobs,
        echo=bool(body.echo),
        best_of=_best_of(body),
    )


def _prompts(body: CompletionsBody) -> list[Prompt]:
    prompts = parse_prompt(body.prompt)
    if not body.suffix:
        return prompts
    for name in ("echo", "truncate_prompt_tokens"):
        if getattr(body, name):
            message = f"'{name}' cannot be used with 'suffix'."
            raise invalid(message, name, "invalid_parameter_combination")
    return [_with_suffix(prompt, body.suffix) for prompt in prompts]


def _with_suffix(prompt: Prompt, suffix: str) -> Prompt:
    if not isinstance(prompt, TextPrompt):
        raise invalid("'suffix' needs a prompt of text.", "suffix", "invalid_parameter_combination")
    return TextPrompt(prompt.text, suffix)


def _best_of(body: CompletionsBody) -> int | None:
    n = body.n or 1
    if body.best_of in (None, n):
        return None
    if body.stream:
        message = "'best_of' cannot be used with 'stream': which choices are best shows at the end."
        raise invalid(message, "best_of", "invalid_parameter_combination")
    if not n <= body.best_of <= MAX_CHOICES:
        message = f"'best_of' must be at least 'n' ({n}) and at most {MAX_CHOICES}."
        raise invalid(message, "best_of", "invalid_value")
    return body.best_of


def parse_prompt(value: Any) -> list[Prompt]:
    """One prompt or many; null is the empty text, the beginning of a document."""
    if value is None or isinstance(value, str):
        return [TextPrompt(value or "")]
    if not isinstance(value, list) or not value:
        raise wrong_prompt(value, "prompt")
    if is_token(value[0]):
        return [token_prompt(value, "prompt")]
    if len(value) > MAX_PROMPTS:
        raise invalid(f"At most {MAX_PROMPTS} prompts are allowed in one request.", "prompt")
    return [_prompt(one, type(value[0]), f"prompt[{i}]") for i, one in enumerate(value)]


def _prompt(value: Any, like: type, param: str) -> Prompt:
    if type(value) is not like or not isinstance(value, str | list):
        raise wrong_prompt(value, param)
    return TextPrompt(value) if isinstance(value, str) else token_prompt(value, param)


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
        prompt = self._shown.of_prompt(event)
        if not prompt and not self._shown.echo:
            return b""
        entries = event.logprobs if self._shown.echo else ()
        beside = self._beside(entries, (), 0)
        fields = "".join(f",{dumps(key)}:{dumps(value)}" for key, value in prompt.items())
        fields = f'"text":{quote(event.text)},{beside},"finish_reason":null{fields}'
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
        first = logprobs.of_completion(prompt, top, 0)
        rest = logprobs.of_completion(answer, top, len(choice.started.text))
        return {key: first[key] + rest[key] for key in first}

    def _of_end(self, event: Finished) -> tuple[TokenLogprob, ...]:
        return event.logprobs if event.stop is None or self._shown.token_ids else ()

    def _beside(
        self, entries: Sequence[TokenLogprob], token_ids: Sequence[int], before: int
    ) -> str:
        """The fields of a chunk beside its text."""
        if self._plain:
            return NO_LOGPROBS
        top = self._shown.logprobs
        shown = (
            logprobs.of_completion(entries, top, before) if entries and top is not None else None
        )
        ids = f',"token_ids":{dumps(token_ids)}' if self._shown.token_ids else ""
        return f'"logprobs":{dumps(shown)}{ids}'
