"""Follows one JSON value that comes character by character."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

SPACE = " \t\n\r"
HEX = "0123456789abcdefABCDEF"
_LITERAL = re.compile(r"-?(0|[1-9]\d*)(\.\d+)?([eE][+-]?\d+)?|true|false|null", re.ASCII)

_State = Callable[[str], Any]  # a character to the next state, None if it is not JSON


class JsonScanner:
    """``key`` is the outermost object's key whose value the last character belongs to.

    ``done`` once the value, an object or an array, is complete. Control characters pass in
    strings: models write them there.
    """

    def __init__(self) -> None:
        self.done = False
        self.key: str | None = None
        self._closers: list[str] = []  # of the objects and arrays that are open
        self._outer_key: str | None = None
        self._token = ""  # the key or the literal that is being read
        self._escape = 0  # characters of an escape that are still to come
        self._string_end: _State = self._after
        self._state: _State = self._value

    @property
    def in_string(self) -> bool:
        return self._state == self._string

    def push(self, char: str) -> bool:
        """Whether it is JSON so far; a character that is not JSON changes nothing."""
        state = self._state(char)
        if state is None:
            return False
        self._state = state
        return True

    def _value(self, char: str) -> _State | None:
        if char in SPACE:
            return self._value
        if self._closers == ["}"]:
            self.key = self._outer_key
        if char in "{[":
            self._closers.append("}" if char == "{" else "]")
            return self._first_key if char == "{" else self._first_item
        if not self._closers:
            return None
        if char == '"':
            self._string_end = self._after
            return self._string
        self._token = char
        return self._literal if char in "-0123456789tfn" else None

    def _first_item(self, char: str) -> _State | None:
        if char in SPACE:
            return self._first_item
        return self._close() if char == "]" else self._value(char)

    def _first_key(self, char: str) -> _State | None:
        if char in SPACE:
            return self._first_key
        return self._close() if char == "}" else self._next_key(char)

    def _next_key(self, char: str) -> _State | None:
        if char in SPACE:
            return self._next_key
        self._token, self._string_end = "", self._colon
        return self._string if char == '"' else None

    def _string(self, char: str) -> _State | None:
        if self._escape:
            return self._escaped(char)
        if char == '"':
            return self._close_string()
        if self._string_end == self._colon:
            self._token += char
        self._escape = int(char == "\\")
        return self._string

    def _escaped(self, char: str) -> _State | None:
        if char not in ('"\\/bfnrtu' if self._escape == 1 else HEX):
            return None
        if self._string_end == self._colon:
            self._token += char
        self._escape = _next_escape(self._escape, char)
        return self._string

    def _close_string(self) -> _State:
        if self._string_end == self._colon and len(self._closers) == 1:
            self._outer_key = json.loads(f'"{self._token}"', strict=False)
        return self._string_end

    def _colon(self, char: str) -> _State | None:
        if char in SPACE:
            return self._colon
        return self._value if char == ":" else None

    def _literal(self, char: str) -> _State | None:
        if char in SPACE or char in ",]}":
            return self._after(char) if _LITERAL.fullmatch(self._token) else None
        self._token += char
        return self._literal

    def _after(self, char: str) -> _State | None:
        if len(self._closers) == 1:
            self.key = None
        if char in SPACE:
            return self._after
        if char == ",":
            return self._next_key if self._closers[-1] == "}" else self._value
        return self._close() if char == self._closers[-1] else None

    def _close(self) -> _State:
        self._closers.pop()
        self.done = not self._closers
        return self._after


def _next_escape(escape: int, char: str) -> int:
    """0 behind an escape, else what comes next: 1 its letter, 5 down to 2 the digits of ``u``."""
    if escape == 1:
        return 5 if char == "u" else 0
    return escape - 1 if escape > 2 else 0
