"""Parts the reasoning at the start of an answer from what comes after it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from models.text.stop import StopMatcher


@dataclass(frozen=True, slots=True)
class ReasoningFormat:
    """The markers around a model's reasoning."""

    begin: str
    end: str

    def is_open(self, text: str) -> bool:
        """Whether a text ends inside of reasoning, nothing but white space of it being there."""
        return text.rstrip().endswith(self.begin)

    def continues(self, text: str) -> bool:
        """Whether an answer of this text so far has begun to reason and not ended."""
        return text.lstrip().startswith(self.begin) and self.end not in text


class ThinkingMarkers(NamedTuple):
    """By which tokens reasoning is followed: each of these texts must be one.

    ``also`` are others that end it, whereupon it may begin once more.
    """

    begin: tuple[str, ...]
    end: str
    also: tuple[str, ...] = ()


FORMATS: Mapping[str, ReasoningFormat] = {
    "think": ReasoningFormat("<think>", "</think>"),
    "mistral": ReasoningFormat("[THINK]", "[/THINK]"),
    "seed": ReasoningFormat("<seed:think>", "</seed:think>"),
    "cohere": ReasoningFormat("<|START_THINKING|>", "<|END_THINKING|>"),
}


def find_format(template: str) -> ReasoningFormat | None:
    """By the text of a chat template."""
    found = (one for one in FORMATS.values() if one.begin in template or one.end in template)
    return next(found, None)


class ReasoningParser:
    """For one choice. ``opened``: the prompt ends inside the reasoning.

    The markers go, and the white space around the reasoning. ``inside`` tells whether what comes
    next belongs to it.
    """

    def __init__(self, format: ReasoningFormat, *, opened: bool = False) -> None:
        self.inside = opened
        self._format = format
        self._matcher = StopMatcher((format.begin,))
        self._begun = False  # whether it is known if the text begins with reasoning
        self._fresh = False  # at the start of a part, whose leading white space goes
        self._space = ""  # held: it goes if nothing follows

    def push(self, text: str) -> tuple[str, str]:
        """More of the reasoning, and more of what comes after it."""
        if not self._begun:
            text = self._begin(text)
        if not text:
            return "", ""
        reasoning, text = self._split(text) if self.inside else ("", text)
        return reasoning, self._without_leading_space(text)

    def flush(self) -> tuple[str, str]:
        """The rest, as the text ends here."""
        rest = self._matcher.flush()
        space, self._space = self._space, ""
        if self.inside:
            return space + rest if rest else "", ""
        return "", space + rest

    def _begin(self, text: str) -> str:
        """The text that comes next in the reasoning, or instead of it."""
        self._space += self._matcher.push(text)
        if self._space.strip():
            stop = self._matcher.stop or ""
            text = self._space + self._matcher.held + stop + self._matcher.rest
        elif self._matcher.stop is not None:
            text, self.inside = self._matcher.rest, True
        else:
            return ""
        self._begun, self._fresh, self._space = True, self.inside, ""
        self._matcher = StopMatcher((self._format.end,) if self.inside else ())
        return text

    def _split(self, text: str) -> tuple[str, str]:
        released = self._without_leading_space(self._space + self._matcher.push(text))
        reasoning = released.rstrip()
        self._space = released[len(reasoning) :]
        if self._matcher.stop is None:
            return reasoning, ""
        rest = self._matcher.rest
        self.inside, self._fresh, self._space = False, True, ""
        self._matcher = StopMatcher(())
        return reasoning, rest

    def _without_leading_space(self, text: str) -> str:
        if self._fresh:
            text = text.lstrip()
            self._fresh = not text
        return text
