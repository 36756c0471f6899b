"""Readers of one call: its name, then its arguments as JSON text that comes in pieces.

A reader turns ``bad`` while nothing of the call has gone out, which is so until its arguments are
complete or long; later trouble stays in the arguments, as OpenAI's clients must expect it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from models.text.stop import StopMatcher
from models.text.tools.scan import JsonScanner

Functions = Mapping[str, Mapping[str, Any]]  # the JSON schema of the arguments by name

ARGUMENTS = ("arguments", "parameters")
KEYS = ("name", "id", "type", *ARGUMENTS)
LONGEST_HEAD = 256  # characters before the arguments: names have 64 at most
CERTAIN = 256  # characters of arguments that go out before the rest is there


class CallReader(Protocol):
    """Reads from the first character of a call on."""

    @property
    def name(self) -> str | None:
        """Once it is certain that this is a call."""
        ...

    @property
    def done(self) -> bool:
        """Whether the call is complete."""
        ...

    @property
    def bad(self) -> bool:
        """Whether it is no call of these functions."""
        ...

    @property
    def rest(self) -> str:
        """Once it is done, the text behind it."""
        ...

    def push(self, text: str) -> str:
        """More of the arguments, "" while there is no ``name``."""
        ...

    def flush(self) -> str:
        """The last of the arguments, as the text ends inside the call."""
        ...


class JsonCall:
    """``{"name": …, "arguments": {…}}``, or with ``called`` given the arguments alone.

    An object that breaks when its arguments have gone out goes on to one of ``ends``.
    """

    def __init__(
        self, functions: Functions, ends: Sequence[str], called: str | None = None
    ) -> None:
        self.name: str | None = None
        self.done = False
        self.bad = False
        self.rest = ""
        self._functions = functions
        self._ends = ends
        self._only_arguments = called is not None
        self._scanner = JsonScanner()
        self._broken: StopMatcher | None = None
        self._called = called
        self._name_text = ""
        self._arguments_key: str | None = None
        self._arguments_ended = False
        self._arguments = ""  # not handed out yet

    def push(self, text: str) -> str:
        pieces: list[str] = []
        for i, char in enumerate(text):
            if self._broken or not self._scanner.push(char):
                return "".join(pieces) + self._push_broken(text[i:])
            pieces.append(self._follow(char))
            if self.bad or self._scanner.done:
                pieces.append(self._conclude(text[i + 1 :]))
                break
        return "".join(pieces)

    def flush(self) -> str:
        if self._broken is not None:
            return self._broken.flush()
        if self.name is None and isinstance(_loads(self._arguments), dict):
            self.name = self._called
        return "" if self.name is None else self._arguments

    def _follow(self, char: str) -> str:
        key = self._scanner.key
        if self._called is None and self._name_text and key is None:
            self._settle_name()
        if self._only_arguments or self._is_arguments(key):
            self._arguments += self._escaped(char)
        elif key == "name":
            self._name_text += char
        elif key is not None and key not in KEYS:
            self.bad = self.name is None
        return self._take()

    def _is_arguments(self, key: str | None) -> bool:
        """Of several values the first counts."""
        if self._arguments_key is None:
            self._arguments_key = key if key in ARGUMENTS else None
        elif key != self._arguments_key:
            self._arguments_ended = True
        return key is not None and key == self._arguments_key and not self._arguments_ended

    def _settle_name(self) -> None:
        name = json.loads(self._name_text, strict=False)
        if isinstance(name, str) and name in self._functions:
            self._called = name
        else:
            self.bad = True

    def _take(self) -> str:
        if self.name is None and self._called and len(self._arguments) >= CERTAIN:
            self.name = self._called if self._arguments.startswith("{") else None
        if self.name is None:
            return ""
        taken, self._arguments = self._arguments, ""
        return taken

    def _escaped(self, char: str) -> str:
        """A control character in a string is not JSON, but what the model meant is clear."""
        return json.dumps(char)[1:-1] if char < " " and self._scanner.in_string else char

    def _conclude(self, rest: str) -> str:
        arguments = self._arguments
        if self.name is None and not self.bad:
            self.name, arguments = self._called, _as_object(arguments)
            self.bad = self.name is None or not arguments
        if self.bad:
            self.name = None
            return ""
        self.done, self.rest = True, rest
        return arguments

    def _push_broken(self, text: str) -> str:
        if self._called and self._arguments_key and self._scanner.key is None:
            return self._conclude(text)  # only what is around the arguments broke
        if self.name is None:
            self.bad = True
            return ""
        self._broken = self._broken or StopMatcher(self._ends)
        out = self._broken.push(text)
        if self._broken.stop is not None:
            self.done, self.rest = True, self._broken.stop + self._broken.rest
        return out


class HeadedCall:
    """A name in a ``head``, then the arguments as a JSON object."""

    def __init__(self, functions: Functions, ends: Sequence[str], head: re.Pattern[str]) -> None:
        self._unnamed = False
        self._functions = functions
        self._ends = ends
        self._pattern = head
        self._head = ""
        self._call: JsonCall | None = None

    @property
    def name(self) -> str | None:
        return self._call.name if self._call else None

    @property
    def done(self) -> bool:
        return self._call is not None and self._call.done

    @property
    def bad(self) -> bool:
        return self._call.bad if self._call else self._unnamed

    @property
    def rest(self) -> str:
        return self._call.rest if self._call else ""

    def push(self, text: str) -> str:
        if self._call is not None:
            return self._call.push(text)
        head, brace, arguments = text.partition("{")
        self._head += head
        if brace:
            self._begin()
        self._unnamed = self._unnamed or len(self._head) > LONGEST_HEAD
        return self._call.push(brace + arguments) if self._call else ""

    def flush(self) -> str:
        return self._call.flush() if self._call else ""

    def _begin(self) -> None:
        head = self._pattern.fullmatch(self._head.strip())
        name = head["name"] if head else None
        if name in self._functions and len(self._head) <= LONGEST_HEAD:
            self._call = JsonCall(self._functions, self._ends, name)
        else:
            self._unnamed = True


def _as_object(text: str) -> str:
    """Arguments that are missing, or JSON inside a string; "" if they are no object."""
    try:
        value = json.loads(text or "null", strict=False)
    except RecursionError:  # nobody nests a call so deep
        return ""
    if isinstance(value, str):
        text = value
        value = _loads(value)
    if value is None:
        return "{}"
    return text if isinstance(value, dict) else ""


def _loads(text: str) -> Any:
    try:
        return json.loads(text) if text.strip() else None
    except (ValueError, RecursionError):
        return text
