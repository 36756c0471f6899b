"""``/v1/completions``: from its JSON to generation requests, from events to its answers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from deployments.openai.call import Call, GenerationBody, Integer, make_call, validated
from deployments.openai.errors import invalid, kind, wrong_type
from deployments.openai.form import Choice, Chunks, Heading, Totals
from deployments.openai.parameters import COMPLETIONS_NEUTRAL, check_extras, unsupported
from deployments.openai.sse import dumps, quote
from deployments.openai.structured import take_grammar
from models.events import Finished, Reasoning, ToolCall
from models.request import Prompt, TextPrompt, TokenPrompt

MAX_TOKENS = 16  # OpenAI's default
MAX_PROMPTS = 2048
PROMPT = "a string, an array of strings, an array of token ids, or an array of such arrays"


class CompletionsBody(GenerationBody):
    prompt: Any = None
    best_of: Integer | None = None


def parse(data: Mapping[str, Any], id: str) -> Call:
    """Raises ``ApiError`` or ``Invalid``."""
    body = validated(CompletionsBody, data)
    extras = dict(body.model_extra or {})
    grammar = take_grammar(extras)
    check_extras(extras, COMPLETIONS_NEUTRAL)
    if body.best_of not in (None, body.n or 1):
        raise unsupported("best_of")
    limit = MAX_TOKENS if body.max_tokens is None else body.max_tokens
    return make_call(body, id, parse_prompt(body.prompt), limit, grammar)


def parse_prompt(value: Any) -> list[Prompt]:
    """One prompt or many; null is the empty text, the beginning of a document."""
    if value is None or isinstance(value, str):
        return [TextPrompt(value or "")]
    if not isinstance(value, list) or not value:
        raise _wrong(value, "prompt")
    if _is_token(value[0]):
        return [_tokens(value, "prompt")]
    if len(value) > MAX_PROMPTS:
        raise invalid(f"At most {MAX_PROMPTS} prompts are allowed in one request.", "prompt")
    return [_prompt(one, type(value[0]), f"prompt[{i}]") for i, one in enumerate(value)]


def _prompt(value: Any, like: type, param: str) -> Prompt:
    if type(value) is not like or not isinstance(value, str | list):
        raise _wrong(value, param)
    return TextPrompt(value) if isinstance(value, str) else _tokens(value, param)


def _tokens(values: list[Any], param: str) -> TokenPrompt:
    if not values:
        raise _wrong(values, param)
    for i, value in enumerate(values):
        if not _is_token(value):
            raise wrong_type("a token id", value, f"{param}[{i}]")
        if not 0 <= value < 2**63:
            raise invalid(f"Invalid value for '{param}[{i}]': not a token id.", f"{param}[{i}]")
    return TokenPrompt(tuple(values))


def _is_token(value: Any) -> bool:
    return type(value) is int


def _wrong(value: Any, param: str) -> Exception:
    if value == []:
        return invalid(f"Invalid value for '{param}': it must not be empty.", param, "empty_array")
    message = f"Invalid type for '{param}': expected {PROMPT}, but got {kind(value)} instead."
    return invalid(message, param, "invalid_type")


class CompletionForm:
    """Writes ``text_completion``, whole and in chunks."""

    prompt_param = "prompt"

    def __init__(self, heading: Heading, include_usage: bool) -> None:
        self._heading = heading
        self._chunks = Chunks(heading, "text_completion", include_usage)

    def whole(self, choices: Sequence[Choice], totals: Totals) -> Mapping[str, Any]:
        return {
            **self._heading.fields("text_completion"),
            "choices": [_choice(i, choice) for i, choice in enumerate(choices)],
            "usage": totals.usage(),
        }

    def opening(self, index: int) -> bytes:
        return b""

    def text(self, index: int, delta: str) -> bytes:
        fields = f'"text":{quote(delta)},"logprobs":null,"finish_reason":null'
        return self._chunks.choice(index, fields)

    def reasoning(self, index: int, event: Reasoning) -> bytes:
        return b""  # a chat's only

    def tool_call(self, index: int, event: ToolCall) -> bytes:
        return b""  # a chat's only

    def finish(self, index: int, event: Finished) -> bytes:
        ends = f'"finish_reason":"{event.reason}","stop_reason":{dumps(event.stop)}'
        return self._chunks.choice(index, f'"text":"","logprobs":null,{ends}')

    def usage(self, totals: Totals) -> bytes:
        return self._chunks.usage(totals)


def _choice(index: int, choice: Choice) -> dict[str, Any]:
    return {
        "index": index,
        "text": choice.text,
        "logprobs": None,
        "finish_reason": choice.end.reason,
        "stop_reason": choice.end.stop,
    }
