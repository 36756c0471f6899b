"""What chat and completions have in common: the parameters of sampling, parsed once."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Any, Literal, TypeVar

from pydantic import AliasChoices, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from deployments.openai.errors import invalid, validation_error
from deployments.openai.form import Shown
from deployments.openai.users import named_by, of_key
from models.request import GenerateRequest, Grammar, Prompt, SamplingParams, TextPrompt, User

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
    "prompt_logprobs",
)


def known_as(*names: str) -> Any:
    """A field that other servers call otherwise; null is its default."""
    return Field(None, validation_alias=AliasChoices(*names))


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
    repetition_penalty: float | None = known_as("repetition_penalty", "repeat_penalty")
    min_tokens: Integer | None = None
    stop_token_ids: list[Integer] | None = None
    ignore_eos: bool | None = None
    prompt_logprobs: Integer | None = None
    allowed_token_ids: list[Integer] | None = None
    bad_words: list[str] | None = None
    return_token_ids: bool | None = None
    return_tokens_as_token_ids: bool | None = None
    include_stop_str_in_output: bool | None = known_as("include_stop_str_in_output", "no_stop_trim")
    skip_special_tokens: bool | None = None
    truncate_prompt_tokens: Integer | None = None
    truncation_side: Literal["left", "right"] | None = None
    timeout: float | None = None
    priority: Integer | None = None
    prompt_cache_key: str | None = known_as("prompt_cache_key", "session_id")
    cache_salt: Annotated[str, Field(min_length=1)] | None = None
    request_id: str | None = known_as("request_id", "rid")


@dataclass(frozen=True, slots=True)
class Call:
    """One HTTP request: a prompt or several, each with ``n`` choices to generate.

    Only the ``best`` ones of those are shown, if that is not None. ``name`` is its caller's for it.
    """

    model: str
    requests: tuple[GenerateRequest, ...]
    stream: bool
    shown: Shown
    best: int | None = None
    name: str | None = None

    @property
    def n(self) -> int:
        """Choices of each prompt."""
        return self.requests[0].n

    def asked_with(self, key: str, *, counted: bool = False) -> tuple[GenerateRequest, ...]:
        """Its requests, of the API key with this opaque name.

        Where they are ``counted``, parts tell of their tokens, to be known when a client leaves.
        """
        requests = tuple(of_key(one, key) for one in self.requests)
        return (
            tuple(replace(one, return_token_ids=True) for one in requests) if counted else requests
        )


Body = TypeVar("Body", bound=BaseModel)


def validated(model: type[Body], data: Mapping[str, Any]) -> Body:
    """The body, or ``ApiError`` about the first thing wrong with it."""
    try:
        return model.model_validate(data)
    except ValidationError as error:
        raise validation_error(error) from None


def make_call(
    body: GenerationBody,
    id: str,
    prompts: Iterable[Prompt],
    max_tokens: int | None,
    *,
    grammar: Grammar | None = None,
    logprobs: int | None = None,
    echo: bool = False,
    best_of: int | None = None,
) -> Call:
    """Raises ``ApiError`` or ``Invalid``; request ids are ``id`` and the prompt's position."""
    shown = _shown(body, logprobs, echo)
    n = 1 if body.n is None else body.n
    sampling = _sampling(body, max_tokens, shown, ranks=best_of is not None)
    wish = GenerateRequest(
        id=id,
        prompt=TextPrompt(""),
        sampling=sampling,
        stop=tuple(body.stop or ()),
        n=n if best_of is None else best_of,
        grammar=grammar,
        echo=echo,
        return_token_ids=shown.token_ids or shown.running_usage,
        include_stop=bool(body.include_stop_str_in_output),
        skip_special_tokens=body.skip_special_tokens is not False,
        truncate_prompt_tokens=body.truncate_prompt_tokens,
        truncates_end=body.truncation_side == "right",
        timeout_s=body.timeout,
        priority=body.priority or 0,
        user=user_of(body.model_extra or {}),
        cache_key=body.prompt_cache_key,
        cache_salt=body.cache_salt or "",
    )
    requests = (replace(wish, id=f"{id}-{i}", prompt=one) for i, one in enumerate(prompts))
    best = None if best_of is None else n
    return Call(body.model, tuple(requests), bool(body.stream), shown, best, body.request_id)


def user_of(extras: Mapping[str, Any]) -> User:
    """Whom an OpenAI body names among the parameters on which no answer depends."""
    return named_by(extras.get("safety_identifier"), extras.get("user"))


def _sampling(
    body: GenerationBody, max_tokens: int | None, shown: Shown, *, ranks: bool
) -> SamplingParams:
    given = {name: getattr(body, name) for name in SAMPLING}
    if shown.echo and shown.logprobs is not None:
        given["prompt_logprobs"] = max(shown.logprobs, body.prompt_logprobs or 0)
    allowed = body.allowed_token_ids
    return SamplingParams(
        max_tokens=max_tokens,
        logprobs=0 if ranks and shown.logprobs is None else shown.logprobs,
        allowed_token_ids=tuple(allowed) if allowed else None,
        bad_words=tuple(body.bad_words or ()),
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


def _shown(body: GenerationBody, logprobs: int | None, echo: bool) -> Shown:
    options = body.stream_options or StreamOptions()
    if body.stream_options is not None and not body.stream:
        message = "The 'stream_options' parameter is only allowed when 'stream' is enabled."
        raise invalid(message, "stream_options")
    if body.prompt_logprobs is not None and body.stream:
        message = "'prompt_logprobs' cannot be used with 'stream'."
        raise invalid(message, "prompt_logprobs", "invalid_parameter_combination")
    return Shown(
        usage=bool(options.include_usage),
        running_usage=bool(options.continuous_usage_stats),
        echo=echo,
        logprobs=logprobs,
        prompt_logprobs=body.prompt_logprobs,
        token_ids=bool(body.return_token_ids),
        tokens_as_ids=bool(body.return_tokens_as_token_ids),
    )
