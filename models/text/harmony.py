"""The channels of gpt-oss: reasoning, content and calls are messages of one stream.

``<|channel|>analysis<|message|>…<|end|><|start|>assistant<|channel|>final<|message|>…``
(OpenAI's harmony response format).
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterator

from models.events import Part, Reasoning, Text, ToolCall
from models.text.reasoning import ThinkingMarkers
from models.text.stop import StopMatcher
from models.text.tools.calls import Functions

START, CHANNEL, MESSAGE = "<|start|>", "<|channel|>", "<|message|>"
CONSTRAIN, END, CALL, RETURN = "<|constrain|>", "<|end|>", "<|call|>", "<|return|>"
MARKERS = (START, CHANNEL, MESSAGE, CONSTRAIN, END, CALL, RETURN)
THINKING = ThinkingMarkers((CHANNEL, "analysis", MESSAGE), END, MARKERS)

LONGEST_OPENING = 256  # characters: names of functions have 64 at most
_TO = "to="  # what a recipient begins with
_RECIPIENT = re.compile(r"\bto=functions\.([A-Za-z0-9_-]+)")


class HarmonyParser:
    """For one choice. Text outside of any message is content.

    ``inside``: the last text is reasoning. Without ``parallel`` it is ``ended`` behind the first
    call.
    """

    def __init__(self, functions: Functions, choice: int = 0, *, parallel: bool = True) -> None:
        self.calls = 0
        self.ended = False
        self.inside = False
        self._functions = functions
        self._choice = choice
        self._parallel = parallel
        self._opening: str | None = ""  # may be the rest of the header that the prompt ends in
        self._header: str | None = None  # of the message that begins
        self._called = False  # the message is a call
        self._matcher = StopMatcher(MARKERS)

    def push(self, text: str) -> Iterator[Part]:
        """What is certain now."""
        while not self.ended:
            yield from self._text(self._matcher.push(text))
            marker, text = self._matcher.stop, self._matcher.rest
            if marker is None:
                return
            self._matcher = StopMatcher(MARKERS)
            yield from self._mark(marker)

    def flush(self) -> Iterator[Part]:
        """The rest, as the text ends here; a header without its message is content."""
        rest = (self._header or "") + self._take_opening() + self._matcher.flush()
        self._header = None
        yield from self._say(rest)

    def _text(self, text: str) -> Iterator[Part]:
        if self._opening is not None:
            text = self._take_opening() + text
            if _may_open(text):
                self._opening = text
                return
        yield from self._say(text)

    def _take_opening(self) -> str:
        opening, self._opening = self._opening or "", None
        return opening

    def _say(self, text: str) -> Iterator[Part]:
        if not text:
            return
        if self._header is not None:
            self._header += text
        elif self._called:
            yield ToolCall(self.calls - 1, None, None, text, self._choice)
        elif self.inside:
            yield Reasoning(text, self._choice)
        else:
            yield Text(text, self._choice)

    def _mark(self, marker: str) -> Iterator[ToolCall]:
        if opening := self._take_opening():
            self._header = opening
        if marker == MESSAGE:
            yield from self._begin(self._header or "")
        elif marker in (START, CHANNEL, CONSTRAIN):
            self._close()
            self._header = (self._header or "") + marker
        else:
            self._close()

    def _begin(self, header: str) -> Iterator[ToolCall]:
        recipient = _RECIPIENT.search(header)
        self._header = None
        self.inside = f"{CHANNEL}analysis" in header and recipient is None
        if recipient is None or recipient[1] not in self._functions:
            return
        self._called = True
        self.calls += 1
        id = f"call_{uuid.uuid4().hex[:24]}"
        yield ToolCall(self.calls - 1, id, recipient[1], "", self._choice)

    def _close(self) -> None:
        self.ended = self._called and not self._parallel
        self._called = self.inside = False


def _may_open(text: str) -> bool:
    """Whether an answer of this text so far may begin with the recipient of a call."""
    words = text.lstrip()
    return len(text) <= LONGEST_OPENING and (words.startswith(_TO) or _TO.startswith(words))
