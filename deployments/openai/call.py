"""What chat and completions have in common: the parameters of sampling, parsed once."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from deployments.openai.errors import invalid, validation_error
from deployments.openai.parameters import unsupported
from models.request import GenerateRequest, Prompt, SamplingParams

# Wide enough for every seed, narrow enough for every later conversion.
Integer = Annotated[int, Field(ge=-(2**63), lt=2**64)]
Count = Annotated[int, Field(ge=1, lt=2**63)]
Stops = Annotated[list[str], BeforeValidator(lambda v: [v] if isinstance(v, str) else v)]

SAMPLING = (
    "min_tokens",
    "temperature",
    "top_p",
    "min_p",
    "presence_penalty",
    "frequency_penalty",
    "repetition_penalty",
    "seed",
    "ignore_eos",
)


class StreamOptions(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    include_usage: bool | None = None
    include_obfuscation: bool | None = None  # of no use here: nothing is padded
    continuous_usage_stats: bool | None = None


class GenerationBody(BaseModel):
    """The JSON of a request. Null is the default everywhere; unknown keys are kept as extras."""

    model_config = ConfigDict(extra="allow", strict=True)

    model: str
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    n: Integer | None = None
    max_tokens: Count | None = None
    stop: Stops | None = None
    temperature: float | None = None
    top_p: float | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    logit_bias: dict[str, float] | None = None
    seed: Integer | None = None
    top_k: Integer | None = None
    min_p: float | None = None
    repetition_penalty: float | None = None
    min_tokens: Integer | None = None
    stop_token_ids: list[Integer] | None = None
    ignore_eos: bool | None = None


@dataclass(frozen=True, slots=True)
class Call:
    """One HTTP request: a prompt or several, each with ``n`` choices."""

    model: str
    requests: tuple[GenerateRequest, ...]
    stream: bool
    include_usage: bool

    @property
    def n(self) -> int:
        """Choices of each prompt."""
        return self.requests[0].n


Body = TypeVar("Body", bound=BaseModel)


def validated(model: type[Body], data: Mapping[str, Any]) -> Body:
    """The body, or ``ApiError`` about the first thing wrong with it."""
    try:
        return model.model_validate(data)
    except ValidationError as error:
        raise validation_error(error) from None


def make_call(
    body: GenerationBody, id: str, prompts: Iterable[Prompt], max_tokens: int | None
) -> Call:
    """Raises ``ApiError`` or ``Invalid``; request ids are ``id`` and the prompt's position."""
    sampling = _sampling(body, max_tokens)
    requests = tuple(
        GenerateRequest(
            id=f"{id}-{i}",
            prompt=prompt,
            sampling=sampling,
            stop=tuple(body.stop or ()),
            n=1 if body.n is None else body.n,
        )
        for i, prompt in enumerate(prompts)
    )
    return Call(body.model, requests, bool(body.stream), _include_usage(body))


def _sampling(body: GenerationBody, max_tokens: int | None) -> SamplingParams:
    given = {name: getattr(body, name) for name in SAMPLING}
    return SamplingParams(
        max_tokens=max_tokens,
        top_k=0 if body.top_k in (None, -1) else body.top_k,
        logit_bias=_logit_bias(body.logit_bias or {}),
        stop_token_ids=tuple(body.stop_token_ids or ()),
        **{name: value for name, value in given.items() if value is not None},
    )


def _logit_bias(biases: Mapping[str, float]) -> dict[int, float]:
    for token in biases:
        if not (token.isascii() and token.isdecimal() and len(token) < 19):
            message = f"Invalid key in 'logit_bias': '{token[:80]}'. Keys are token ids."
            raise invalid(message, "logit_bias", "invalid_value")
    return {int(token): bias for token, bias in biases.items()}


def _include_usage(body: GenerationBody) -> bool:
    options = body.stream_options
    if options is None:
        return False
    if not body.stream:
        message = "The 'stream_options' parameter is only allowed when 'stream' is enabled."
        raise invalid(message, "stream_options")
    if options.continuous_usage_stats:
        raise unsupported("stream_options.continuous_usage_stats")
    return bool(options.include_usage)
