"""What a caller asks for. A value of these types is valid: nothing downstream checks it again."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

from models.errors import Invalid

MAX_CHOICES = 128
MAX_STOPS = 64
MAX_LOGPROBS = 20
MAX_BAD_WORDS = 256
MAX_PRIORITY = 1000
MOST = 2**63 - 1  # of whatever has no other bound: what fits a tensor


class Limits(NamedTuple):
    """A number is from ``low`` to ``high``, both included."""

    low: float
    high: float


# Of parameters of sampling, as callers are told them too.
LIMITS: Mapping[str, Limits] = {
    "temperature": Limits(0, 2),
    "top_p": Limits(0, 1),
    "min_p": Limits(0, 1),
    "presence_penalty": Limits(-2, 2),
    "frequency_penalty": Limits(-2, 2),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplingParams:
    """How the next token of one sequence is chosen, and when it must end.

    ``max_tokens=None`` means to the end of the context, 0 that the prompt is only looked at;
    ``temperature=0`` is greedy, and so is ``top_p=0``; ``top_k=0``, ``top_p=1`` and ``min_p=0`` are
    off. ``seed=None`` draws one. ``logprobs`` and ``prompt_logprobs`` ask how likely each token was
    by the model alone, before temperature and penalties, and for as many of the likeliest ones
    beside it. No token but ``allowed_token_ids`` is ever sampled, nor any that would complete one
    of ``bad_words``, as the tokenizer spells it with or without a space before it.
    """

    max_tokens: int | None = None
    min_tokens: int = 0
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    repetition_penalty: float = 1.0
    logit_bias: Mapping[int, float] = field(default_factory=dict)
    seed: int | None = None
    stop_token_ids: tuple[int, ...] = ()
    ignore_eos: bool = False
    logprobs: int | None = None
    prompt_logprobs: int | None = None
    allowed_token_ids: tuple[int, ...] | None = None
    bad_words: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.max_tokens is not None:
            _within("max_tokens", self.max_tokens, 0, MOST)
        _within("min_tokens", self.min_tokens, 0, MOST)
        if self.max_tokens is not None and self.min_tokens > self.max_tokens:
            raise Invalid(
                f"min_tokens ({self.min_tokens}) is greater than max_tokens ({self.max_tokens}).",
                "min_tokens",
            )
        for name, limits in LIMITS.items():
            _within(name, getattr(self, name), *limits)
        _within("top_k", self.top_k, 0, MOST)
        _within("repetition_penalty", self.repetition_penalty, 0.01, 100.0)
        for token, bias in self.logit_bias.items():
            _within("logit_bias", token, 0, MOST)
            _within("logit_bias", bias, -100.0, 100.0)
        if self.seed is not None:
            _within("seed", self.seed, -(2**63), 2**64 - 1)
        for token in self.stop_token_ids:
            _within("stop_token_ids", token, 0, MOST)
        for name in ("logprobs", "prompt_logprobs"):
            if (top := getattr(self, name)) is not None:
                _within(name, top, 0, MAX_LOGPROBS)
        self._check_words()

    @property
    def penalises(self) -> bool:
        """Whether the sequence's own tokens change its logits."""
        return bool(self.presence_penalty or self.frequency_penalty or self.repetition_penalty != 1)

    def _check_words(self) -> None:
        if self.allowed_token_ids is not None and not self.allowed_token_ids:
            raise Invalid("allowed_token_ids must hold at least one token.", "allowed_token_ids")
        for token in self.allowed_token_ids or ():
            _within("allowed_token_ids", token, 0, MOST)
        if len(self.bad_words) > MAX_BAD_WORDS:
            raise Invalid(f"At most {MAX_BAD_WORDS} bad words are allowed.", "bad_words")
        if not all(word.strip() for word in self.bad_words):
            raise Invalid("A bad word must not be empty.", "bad_words")


@dataclass(frozen=True, slots=True)
class ChatPrompt:
    """Messages for the model's chat template, as plain JSON values (``role``, ``content``, …).

    ``tools`` are OpenAI's function tools, their names distinct; ``template_kwargs`` more variables
    of the template. With ``continue_final_message`` the answer goes on with the last message.
    ``special_tokens``: the tokenizer's own are added to those that the template writes.
    """

    messages: tuple[Mapping[str, Any], ...]
    tools: tuple[Mapping[str, Any], ...] = ()
    documents: tuple[Mapping[str, Any], ...] = ()
    template_kwargs: Mapping[str, Any] = field(default_factory=dict)
    add_generation_prompt: bool = True
    continue_final_message: bool = False
    special_tokens: bool = False

    def __post_init__(self) -> None:
        if not self.messages:
            raise Invalid("messages must hold at least one message.", "messages")
        if self.continue_final_message and self.add_generation_prompt:
            message = "continue_final_message needs add_generation_prompt to be false."
            raise Invalid(message, "continue_final_message")


@dataclass(frozen=True, slots=True)
class TextPrompt:
    """Raw text, encoded with the tokenizer's own special tokens, or without.

    With a ``suffix`` the answer is what stands between the two.
    """

    text: str
    suffix: str = ""
    special_tokens: bool = True


@dataclass(frozen=True, slots=True)
class TokenPrompt:
    """Token ids, used as they are."""

    token_ids: tuple[int, ...]

    def __post_init__(self) -> None:
        if not self.token_ids:
            raise Invalid("The prompt must hold at least one token.", "prompt")
        for token in self.token_ids:
            _within("prompt", token, 0, MOST)


Prompt = ChatPrompt | TextPrompt | TokenPrompt


class User(NamedTuple):
    """For whom a request is: the API key it came with, and whom it names within that key.

    Opaque names, equal for the same key or user; empty where there is none.
    """

    key: str = ""
    name: str = ""

    @property
    def background(self) -> bool:
        """Whether it is served only while nobody else waits."""
        return self.key == BACKGROUND


BACKGROUND = "background"  # in the place of a key, which no key's opaque name is
ANYBODY = User()


GrammarKind = Literal["json_object", "json_schema", "regex", "choice", "lark", "gbnf"]


@dataclass(frozen=True, slots=True)
class Grammar:
    """What every answer must be, whole: an answer that ends with ``stop`` matches it.

    ``source`` is the text of a JSON schema, a regular expression, a JSON array of strings to
    choose from, or a grammar; it is not looked at for ``json_object``. ``param`` is blamed for a
    grammar that cannot be compiled, as its caller spells it.
    """

    kind: GrammarKind
    source: str = ""
    param: str = "response_format"


@dataclass(frozen=True, slots=True)
class ToolChoice:
    """Whether the answer may (``auto``) or must (``required``) call the prompt's tools.

    ``name`` is the one function that a required call must be of. Without ``parallel`` there is at
    most one call.
    """

    mode: Literal["auto", "required"] = "auto"
    name: str | None = None
    parallel: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class ThinkingLimit:
    """How many tokens an answer may reason for, and by which tokens that is known.

    ``begin`` comes right before the reasoning, and any of ``ends`` right behind it: they are not
    among ``tokens``. ``end`` is the one to force. The answer begins with reasoning, but for tokens
    that are ``blank``, unless it may come ``again`` and again; the prompt ends in it if ``opened``.
    """

    tokens: int
    begin: tuple[int, ...]
    end: int
    ends: frozenset[int]
    opened: bool = False
    again: bool = False
    blank: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class GenerateRequest:
    """One prompt, ``n`` choices of an answer to it. ``stop`` strings keep the caller's spelling.

    ``echo`` and ``return_token_ids`` ask ``Started`` for the prompt's text and ids, and the latter
    for the ids of the answer. ``include_stop`` leaves the stop in the text. Only the last
    ``truncate_prompt_tokens`` of the prompt are read, or the first ones if it ``truncates_end``.
    After ``timeout_s`` seconds the answer ends as it does at ``max_tokens``, or with ``TimedOut``
    if it has not begun. Users take turns; of requests of one ``user`` that wait, those with a lower
    ``priority`` go first, at one second of waiting a unit. Requests with the same ``cache_key`` are
    said to begin alike; those with another ``cache_salt`` find nothing of each other's prompts in a
    cache. After ``thinking_budget`` tokens the reasoning of each choice is made to end. ``adapter``
    is one of the model's by its name, None for the model alone.
    """

    id: str
    prompt: Prompt
    sampling: SamplingParams = field(default_factory=SamplingParams)
    stop: tuple[str, ...] = ()
    n: int = 1
    grammar: Grammar | None = None
    tool_choice: ToolChoice = ToolChoice()
    thinking_budget: int | None = None
    echo: bool = False
    return_token_ids: bool = False
    include_stop: bool = False
    skip_special_tokens: bool = True
    truncate_prompt_tokens: int | None = None
    truncates_end: bool = False
    timeout_s: float | None = None
    priority: int = 0
    user: User = ANYBODY
    cache_key: str | None = None
    cache_salt: str = ""
    adapter: str | None = None

    def __post_init__(self) -> None:
        _within("n", self.n, 1, MAX_CHOICES)
        if self.truncate_prompt_tokens is not None:
            _within("truncate_prompt_tokens", self.truncate_prompt_tokens, 1, MOST)
        if self.thinking_budget is not None:
            _within("thinking_token_budget", self.thinking_budget, 0, MOST)
        if self.timeout_s is not None:
            _within("timeout", self.timeout_s, 0, math.inf, open_below=True)
        _within("priority", self.priority, -MAX_PRIORITY, MAX_PRIORITY)
        if len(self.stop) > MAX_STOPS:
            raise Invalid(f"At most {MAX_STOPS} stop sequences are allowed.", "stop")


def _within(param: str, value: float, low: float, high: float, *, open_below: bool = False) -> None:
    if not math.isfinite(value):
        raise Invalid(f"{param} must be a finite number.", param)
    if value < low or value > high or (open_below and value == low):
        bound = "greater than" if open_below else "at least"
        limit = "" if high >= MOST and value <= MOST else f" and at most {high:g}"
        raise Invalid(f"{param} must be {bound} {low:g}{limit}, not {value:g}.", param)
