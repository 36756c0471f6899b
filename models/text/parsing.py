"""From an answer's text to what it says: reasoning, content and calls, as its model writes them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Protocol

from models.events import Part, Reasoning, Text
from models.request import ChatPrompt, GenerateRequest, Grammar
from models.text import harmony
from models.text import reasoning as reasons
from models.text.harmony import HarmonyParser
from models.text.reasoning import ReasoningFormat, ReasoningParser, ThinkingMarkers
from models.text.tools import formats as tools
from models.text.tools.calls import Functions
from models.text.tools.formats import ToolFormat
from models.text.tools.grammar import JSON_KINDS, TokenIds, whole_grammar
from models.text.tools.parser import ToolParser


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
class Reading:
    """How the text of one answer is read.

    ``markers`` must show in it though they are special tokens; ``opened`` tells whether the prompt
    ends inside of reasoning.
    """

    markers: frozenset[str] = frozenset()
    opened: bool = False


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

    def reading(self, prompt: ChatPrompt, end: str) -> Reading:
        """Of the answer to a prompt, whose text ends with ``end``."""
        opened = False
        if self.reasoning is not None and prompt.continue_final_message:
            opened = self.reasoning.continues(str(prompt.messages[-1].get("content")))
        elif self.reasoning is not None:
            opened = self.reasoning.is_open(end)
        return Reading(self._markers(with_tools=bool(prompt.tools)), opened)

    def parser(
        self, request: GenerateRequest, choice: int = 0, *, opened: bool = False
    ) -> AnswerParser | None:
        """For one choice; None if all of its text is content."""
        functions, parallel = functions_of(request), request.tool_choice.parallel
        if not isinstance(request.prompt, ChatPrompt) or not (functions or self.reasons):
            return None
        if self.channels and not _is_constrained(request):
            return HarmonyParser(functions, choice, parallel=parallel)
        form = self._reasoning_of(request)
        reasoning = ReasoningParser(form, opened=opened) if form else None
        format = self._tools_of(request)
        calls = ToolParser(format, functions, choice, parallel=parallel) if functions else None
        return ReasonedParser(reasoning, calls, choice)

    def grammar(self, request: GenerateRequest, reading: Reading, ids: TokenIds) -> Grammar | None:
        """What the whole answer must match, its reasoning and its calls included."""
        if not isinstance(request.prompt, ChatPrompt):
            return request.grammar
        return whole_grammar(
            request,
            functions_of(request),
            self._tools_of(request),
            self._reasoning_of(request),
            opened=reading.opened,
            ids=ids,
        )

    def thinking(self, request: GenerateRequest) -> ThinkingMarkers | None:
        """Around what is read as reasoning in the answer; None if nothing is."""
        if not isinstance(request.prompt, ChatPrompt):
            return None
        if self.channels:
            return None if _is_constrained(request) else harmony.THINKING
        form = self._reasoning_of(request)
        return ThinkingMarkers((form.begin,), form.end) if form else None

    def _markers(self, *, with_tools: bool) -> frozenset[str]:
        if self.channels:
            return frozenset(harmony.MARKERS)
        reasoning = {self.reasoning.begin, self.reasoning.end} if self.reasoning else set()
        return frozenset(reasoning) | (self.tools.markers if with_tools else frozenset())

    def _reasoning_of(self, request: GenerateRequest) -> ReasoningFormat | None:
        """Nothing comes before an answer that is no JSON but matches a grammar."""
        grammar, required = request.grammar, request.tool_choice.mode == "required"
        if grammar is None or required or grammar.kind in JSON_KINDS:
            return self.reasoning
        return None

    def _tools_of(self, request: GenerateRequest) -> ToolFormat:
        """Under a grammar, plain JSON where the model's own format has no grammar."""
        is_own = self.tools.written is not None or not _is_constrained(request)
        return self.tools if is_own else tools.JSON


def functions_of(request: GenerateRequest) -> Functions:
    """The schemas of the arguments by name, of the functions that may be called."""
    prompt = request.prompt
    functions = (
        [tool["function"] for tool in prompt.tools] if isinstance(prompt, ChatPrompt) else []
    )
    return {one["name"]: one.get("parameters") or {} for one in functions}


def _is_constrained(request: GenerateRequest) -> bool:
    return request.grammar is not None or request.tool_choice.mode == "required"


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
