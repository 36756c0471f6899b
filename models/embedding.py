"""What it is to embed: texts in, one vector of each out. The types, and the interface above them.

Vectors travel as bytes, little-endian float32: small, quick to pickle, and what clients ask for.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from models.errors import Invalid, TooLong
from models.request import ANYBODY, TextPrompt, TokenPrompt, User

MAX_INPUTS = 2048  # as OpenAI's
WHOLE_CONTEXT = -1  # of ``truncate``: as many tokens as the model takes


@dataclass(frozen=True, slots=True, kw_only=True)
class EmbedRequest:
    """Inputs to embed. ``single`` tells that the caller gave one by itself, not a list.

    ``dimensions=None`` are all that the model has. ``truncate`` keeps so many tokens of a longer
    input, its first ones, special tokens included; None makes an input that is too long an error.
    Users take turns.
    """

    id: str
    inputs: tuple[TextPrompt | TokenPrompt, ...]
    single: bool = False
    dimensions: int | None = None
    truncate: int | None = None
    user: User = ANYBODY

    def __post_init__(self) -> None:
        if not 1 <= len(self.inputs) <= MAX_INPUTS:
            message = f"input must hold 1 to {MAX_INPUTS} inputs, not {len(self.inputs)}."
            raise Invalid(message, "input")
        if self.dimensions is not None and self.dimensions < 1:
            raise Invalid(f"dimensions must be at least 1, not {self.dimensions}.", "dimensions")
        if self.truncate is not None and self.truncate < 1 and self.truncate != WHOLE_CONTEXT:
            message = f"truncate_prompt_tokens must be at least 1, or -1, not {self.truncate}."
            raise Invalid(message, "truncate_prompt_tokens")

    def place(self, index: int) -> str:
        """An input's place in the request, as its caller spells it."""
        return "input" if self.single else f"input[{index}]"


@dataclass(frozen=True, slots=True)
class TokenInputs:
    """The half of a request that needs no text."""

    token_ids: tuple[tuple[int, ...], ...]
    dimensions: int | None = None
    user: User = ANYBODY

    @property
    def tokens(self) -> int:
        return sum(map(len, self.token_ids))


@dataclass(frozen=True, slots=True)
class Embedded:
    """``vectors`` in the order of the inputs, each of little-endian float32."""

    vectors: tuple[bytes, ...]
    prompt_tokens: int


class InputTooLong(TooLong):
    """One input is longer than the model takes: both counts are in tokens."""

    def __init__(self, place: str, tokens: int, max_context: int) -> None:
        super().__init__(tokens, max_context)
        self.place = place
        self.message = (
            f"This model's maximum input length is {max_context} tokens, but '{place}' has"
            f" {tokens} tokens. Please reduce its length."
        )
        self.args = (self.message,)

    def __reduce__(self) -> tuple[type[InputTooLong], tuple[str, int, int]]:  # type: ignore[override]
        return InputTooLong, (self.place, self.prompt_tokens, self.max_context)


@runtime_checkable
class Embeds(Protocol):
    """Text in, vectors out: an embedding model, as everything above the models sees it."""

    name: str
    max_context: int  # tokens of one input

    async def embed(self, request: EmbedRequest) -> Embedded:
        """Raises ``EngineError``. Cancelling the call drops what was not computed yet."""
        ...
