"""Prompts with a hole to fill: the text before it and after it, between tokens made for that."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Infill:
    """One vocabulary's tokens: before the prefix, before the suffix, before the answer.

    The prefix comes first unless ``suffix_first``. Of ``ends``, those that the vocabulary has end
    the answer, as the end of the sequence does.
    """

    prefix: str
    suffix: str
    middle: str = ""
    ends: tuple[str, ...] = ()
    suffix_first: bool = False

    @property
    def tokens(self) -> tuple[str, ...]:
        """All that a vocabulary must have."""
        return tuple(token for token in (self.prefix, self.suffix, self.middle) if token)

    def text(self, prefix: str, suffix: str) -> str:
        """The prompt."""
        parts = [self.prefix + prefix, self.suffix + suffix]
        return "".join([*(reversed(parts) if self.suffix_first else parts), self.middle])


FORMS = (
    Infill(  # Qwen-Coder, CodeGemma
        "<|fim_prefix|>",
        "<|fim_suffix|>",
        "<|fim_middle|>",
        ("<|endoftext|>", "<|fim_pad|>", "<|repo_name|>", "<|file_sep|>", "<|file_separator|>"),
    ),
    Infill(  # StarCoder, Granite
        "<fim_prefix>",
        "<fim_suffix>",
        "<fim_middle>",
        ("<|endoftext|>", "<fim_pad>", "<repo_name>", "<file_sep>"),
    ),
    Infill("<fim-prefix>", "<fim-suffix>", "<fim-middle>", ("<|endoftext|>", "<fim-pad>")),
    Infill("<｜fim▁begin｜>", "<｜fim▁hole｜>", "<｜fim▁end｜>"),  # DeepSeek-Coder
    Infill("▁<PRE>", "▁<SUF>", "▁<MID>", ("▁<EOT>",)),  # CodeLlama
    Infill("[PREFIX]", "[SUFFIX]", suffix_first=True),  # Codestral
)


def find_infill(added: Collection[str]) -> Infill | None:
    """By the tokens that were added to a vocabulary."""
    return next((form for form in FORMS if all(token in added for token in form.tokens)), None)
