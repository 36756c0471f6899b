"""Parts the calls in an answer's text from its content.

No text is lost: what is no call of the request's functions is content. The text decides, never how
it is cut into pieces.
"""

from __future__ import annotations

import uuid
from collections.abc import Generator, Iterator

from models.events import Text, ToolCall
from models.text.stop import StopMatcher
from models.text.tools.calls import CallReader, Functions
from models.text.tools.formats import ToolFormat

SEPARATORS = " \t\r\n[],;"  # before, between and after calls

_Step = Generator[Text | ToolCall, None, str]  # returns the text that is still to be looked at


class ToolParser:
    """For one choice. Without ``parallel`` it is ``ended`` behind the first call."""

    def __init__(
        self, format: ToolFormat, functions: Functions, choice: int = 0, *, parallel: bool = True
    ) -> None:
        self.calls = 0
        self.ended = False
        self._format = format
        self._functions = functions
        self._choice = choice
        self._parallel = parallel
        self._reader: CallReader | None = None
        self._read = ""  # by the reader, while it may turn out to be no call
        self._skipped = ""  # white space, separators and markers that may have to be content
        self._in_content = False
        self._expected = False  # a marker has announced a call
        self._outside = StopMatcher(self._markers())

    def push(self, text: str) -> Iterator[Text | ToolCall]:
        """Content and calls that are certain now."""
        while text and not self.ended:
            part = self._push_call(text) if self._reader else self._push_outside(text)
            text = yield from part

    def flush(self) -> Iterator[Text | ToolCall]:
        """The rest, as the text ends here."""
        while self._reader is not None:
            known = self._reader.name is not None
            arguments = self._reader.flush()
            if self._reader.name is not None:
                yield from self._call(arguments, None if known else self._reader.name)
                return
            yield from self.push((yield from self._give_up()))
        rest = self._skipped + self._outside.flush() + self._left()
        if not self.ended and (not self.calls or rest.strip(SEPARATORS)):
            yield from self._content(rest)

    def _push_outside(self, text: str) -> _Step:
        released = self._outside.push(text)
        if self._in_content:
            yield from self._content(released)
            return self._begin_marked()
        body = released.lstrip(SEPARATORS)
        self._skipped += released[: len(released) - len(body)]
        if not body:
            return (yield from self._end_marker())
        left = body + self._left()
        if self._expected or (body[0] == "{" and (self._format.bare or self.calls)):
            self._reader, self._read = self._format.reader(self._functions, body[0]), ""
        else:
            yield from self._enter_content()
        return left

    def _left(self) -> str:
        """What was pushed outside of calls and not taken."""
        matcher = self._outside
        return matcher.held if matcher.stop is None else matcher.stop + matcher.rest

    def _end_marker(self) -> _Step:
        """Behind separators only."""
        marker, rest = self._outside.stop, self._outside.rest
        if marker is None:
            return ""
        if marker in self._format.begins:
            return self._begin_marked()
        self._outside = StopMatcher(self._markers())
        if self._expected or not self.calls:
            self._skipped += marker
            yield from self._enter_content()
        else:
            self._skipped = ""
        return rest

    def _begin_marked(self) -> str:
        marker, rest = self._outside.stop, self._outside.rest
        if marker is None:
            return ""
        self._skipped += marker
        self._expected, self._in_content = True, False
        self._outside = StopMatcher(self._markers())
        return rest

    def _push_call(self, text: str) -> _Step:
        assert self._reader is not None
        reader, known = self._reader, self._reader.name is not None
        self._read += "" if known else text
        arguments = reader.push(text)
        if reader.bad:
            return (yield from self._give_up())
        if reader.name is not None:
            yield from self._call(arguments, None if known else reader.name)
        return self._end_call(reader) if reader.done else ""

    def _end_call(self, reader: CallReader) -> str:
        self._reader, self._expected, self._in_content = None, False, False
        self._outside = StopMatcher(self._markers())
        self.ended = not self._parallel
        return reader.rest

    def _give_up(self) -> _Step:
        """It was no call: its marker is content, and the text behind it is looked at again."""
        self._reader = None
        yield from self._enter_content()
        return self._read

    def _enter_content(self) -> Iterator[Text]:
        skipped = self._skipped.lstrip() if self.calls else self._skipped
        self._skipped, self._expected, self._in_content = "", False, True
        self._outside = StopMatcher(self._markers())
        yield from self._content(skipped)

    def _markers(self) -> tuple[str, ...]:
        """The end of a call means something only where there is one."""
        near_calls = (self.calls or self._expected) and not self._in_content
        return self._format.begins + (self._format.ends if near_calls else ())

    def _content(self, text: str) -> Iterator[Text]:
        if text:
            yield Text(text, self._choice)

    def _call(self, arguments: str, name: str | None = None) -> Iterator[ToolCall]:
        if name is not None:
            index = self.calls
            self.calls += 1
            self._skipped = ""
            yield ToolCall(index, self._new_id(), name, arguments, self._choice)
        elif arguments:
            yield ToolCall(self.calls - 1, None, None, arguments, self._choice)

    def _new_id(self) -> str:
        unique = uuid.uuid4().hex
        length = self._format.id_length
        return f"call_{unique[:24]}" if length is None else unique[:length]
