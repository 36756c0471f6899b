"""From an answer's text to what it says: reasoning, content and calls, as its model writes them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from models.events import Reasoning, Text, ToolCall
from models.request import ToolChoice
from models.text import harmony
from models.text import reasoning as reasons
from models.text.harmony import HarmonyParser
from models.text.reasoning import ReasoningFormat, ReasoningParser
from models.text.tools import formats as tools
from models.text.tools.calls import Functions
from models.text.tools.formats import ToolFormat
from models.text.tools.parser import ToolParser

Part = Reasoning | Text | ToolCall


class AnswerParser(Protocol):
    """Takes the text of one choice. All its parts joined are all that was said."""

    @property
    def calls(self) -> int:
        """So far."""
        ...

    @property
    def ended(self) -> bool:
        """Whether nothing more is wanted."""
        ...

    @property
    def inside(self) -> bool:
        """Whether what comes next is reasoning."""
        ...

    def push(self, text: str) -> Iterable[Part]:
        """What is certain now."""
        ...

    def flush(self) -> Iterable[Part]:
        """What was held, in order, as the text ends here."""
        ...


@dataclass(frozen=True, slots=True)
class Formats:
    """How one model writes its reasoning and its calls. ``channels``: as gpt-oss, both in one."""

    reasoning: ReasoningFormat | None
    tools: ToolFormat
    channels: bool = False

    @property
    def reasons(self) -> bool:
        """Whether answers hold reasoning."""
        return self.channels or self.reasoning is not None

    def markers(self, *, with_tools: bool) -> frozenset[str]:
        """What a parser must see in the text, special tokens too."""
        if self.channels:
            return frozenset(harmony.MARKERS)
        reasoning = {self.reasoning.begin, self.reasoning.end} if self.reasoning else set()
        return frozenset(reasoning) | (self.tools.markers if with_tools else frozenset())

    def is_open(self, prompt: str) -> bool:
        """Whether a prompt ends inside of reasoning."""
        return self.reasoning is not None and self.reasoning.is_open(prompt)

    def continues(self, answer: str) -> bool:
        """Whether an answer so far ends inside of reasoning."""
        return self.reasoning is not None and self.reasoning.continues(answer)

    def parser(
        self,
        functions: Functions,
        tool_choice: ToolChoice,
        choice: int = 0,
        *,
        opened: bool = False,
    ) -> AnswerParser:
        """For one choice. Required calls are plain JSON, whatever the model's own format."""
        required, parallel = tool_choice.mode == "required", tool_choice.parallel
        if self.channels and not required:
            return HarmonyParser(functions, choice, parallel=parallel)
        reasoning = ReasoningParser(self.reasoning, opened=opened) if self.reasoning else None
        format = tools.JSON if required else self.tools
        calls = ToolParser(format, functions, choice, parallel=parallel) if functions else None
        return ReasonedParser(reasoning, calls, choice)


def functions_of(definitions: Iterable[Mapping[str, Any]]) -> Functions:
    """OpenAI's function tools as the schemas of their arguments by name."""
    functions = [tool["function"] for tool in definitions]
    return {one["name"]: one.get("parameters") or {} for one in functions}


def find_formats(template: str, reasoning: str = "auto", tool_format: str = "auto") -> Formats:
    """By the text of a chat template, but for what is named: a format, or ``off`` for reasoning."""
    is_harmony = reasoning == "auto" and tool_format == "auto" and harmony.CHANNEL in template
    if is_harmony or "harmony" in (reasoning, tool_format):
        return Formats(None, tools.JSON, channels=True)
    return Formats(
        reasons.find_format(template) if reasoning == "auto" else reasons.FORMATS.get(reasoning),
        tools.find_format(template) if tool_format == "auto" else tools.FORMATS[tool_format],
    )


class ReasonedParser:
    """Reasoning first, then content and calls."""

    def __init__(
        self, reasoning: ReasoningParser | None, tools: ToolParser | None, choice: int = 0
    ) -> None:
        self._reasoning = reasoning
        self._tools = tools
        self._choice = choice

    @property
    def calls(self) -> int:
        return self._tools.calls if self._tools else 0

    @property
    def ended(self) -> bool:
        return self._tools is not None and self._tools.ended

    @property
    def inside(self) -> bool:
        return self._reasoning is not None and self._reasoning.inside

    def push(self, text: str) -> Iterator[Part]:
        reasoning, rest = self._reasoning.push(text) if self._reasoning else ("", text)
        yield from self._parts(reasoning, rest)

    def flush(self) -> Iterator[Part]:
        if self._reasoning is not None:
            yield from self._parts(*self._reasoning.flush())
        if self._tools is not None:
            yield from self._tools.flush()

    def _parts(self, reasoning: str, rest: str) -> Iterator[Part]:
        if reasoning:
            yield Reasoning(reasoning, self._choice)
        if self._tools is not None:
            yield from self._tools.push(rest)
        elif rest:
            yield Text(rest, self._choice)
