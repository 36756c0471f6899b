"""``/v1/completions``: from its JSON to generation requests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Annotated, Any

from pydantic import Field

from deployments.openai.call import Call, GenerationBody, Integer, make_call, validated
from deployments.openai.errors import invalid
from deployments.openai.inputs import parse_inputs
from deployments.openai.parameters import COMPLETIONS_NEUTRAL, check_extras
from deployments.openai.structured import take_grammar
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
    add_special_tokens: bool | None = None


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


def _prompts(body: CompletionsBody) -> Sequence[Prompt]:
    prompts = _parse_prompt(body.prompt, special_tokens=body.add_special_tokens is not False)
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
    return replace(prompt, suffix=suffix)


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


def _parse_prompt(value: Any, *, special_tokens: bool) -> Sequence[Prompt]:
    """One prompt or many; null is the empty text, the beginning of a document."""

    def of_text(text: str, at: str) -> TextPrompt:
        return TextPrompt(text, special_tokens=special_tokens)

    return parse_inputs("" if value is None else value, "prompt", of_text, _check_count)


def _check_count(prompts: int) -> None:
    if prompts > MAX_PROMPTS:
        raise invalid(f"At most {MAX_PROMPTS} prompts are allowed in one request.", "prompt")
