"""Reads a call whose arguments are written key by key between tags, as JSON."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NoReturn

from models.text.stop import StopMatcher
from models.text.tools.calls import Functions


@dataclass(frozen=True, slots=True)
class Tags:
    """The text around a call's parts; values that are no strings are JSON.

    With ``trim`` one line end at each side of a value is not part of it.
    """

    name: re.Pattern[str]  # all before the first key, stripped
    key: tuple[str, str]
    value: tuple[str, str]  # the first may be empty: the value begins behind the key
    end: str
    trim: bool = False


class TaggedCall:
    """See ``CallReader``. Each argument comes out whole."""

    def __init__(self, functions: Functions, tags: Tags) -> None:
        self.name: str | None = None
        self.done = False
        self.bad = False
        self.rest = ""
        self._functions = functions
        self._tags = tags
        self._text = ""  # of the part that is being read
        self._key = ""
        self._keys = 0
        self._expect(self._end_name, tags.key[0], tags.end)

    def push(self, text: str) -> str:
        out = ""
        while text and not (self.done or self.bad):
            self._text += self._matcher.push(text)
            if self._matcher.stop is None:
                return out
            text = self._matcher.rest
            out += self._end_part(self._matcher.stop)
        self.rest = text
        return out

    def flush(self) -> str:
        self._text += self._matcher.flush()
        if self._end_part != self._end_value or not self._text:
            return ""
        value = _trimmed(self._text) if self._tags.trim else self._text
        partial = json.dumps(value, ensure_ascii=False)[:-1] if self._is_string(value) else value
        return self._before_value() + partial

    def _expect(self, end_part: Callable[[str], str], *markers: str) -> None:
        self._end_part = end_part
        self._matcher = StopMatcher(markers)

    def _take(self) -> str:
        text, self._text = self._text, ""
        return text

    def _end_name(self, marker: str) -> str:
        head = self._tags.name.fullmatch(self._take().strip())
        if head is None or head["name"] not in self._functions:
            self.bad = True
            return ""
        self.name = head["name"]
        return self._next(marker)

    def _next(self, marker: str) -> str:
        """Behind the name, or behind a value."""
        stray = self._take().strip()
        if marker == self._tags.end:
            self.done = True
            return stray + ("}" if self._keys else "{}")
        self._expect(self._end_key, self._tags.key[1])
        return stray

    def _end_key(self, marker: str) -> str:
        self._key = self._take().strip()
        if self._tags.value[0]:
            self._expect(self._begin_value, self._tags.value[0])
            return ""
        return self._begin_value(marker)

    def _begin_value(self, marker: str) -> str:
        self._expect(self._end_value, self._tags.value[1])
        return self._take().strip()

    def _end_value(self, marker: str) -> str:
        value = _trimmed(self._take()) if self._tags.trim else self._take()
        written = json.dumps(value, ensure_ascii=False) if self._is_string(value) else value.strip()
        out = self._before_value() + written
        self._keys += 1
        self._expect(self._next, self._tags.key[0], self._tags.end)
        return out

    def _before_value(self) -> str:
        key = json.dumps(self._key, ensure_ascii=False)
        return f"{', ' if self._keys else '{'}{key}: "

    def _is_string(self, value: str) -> bool:
        assert self.name is not None
        properties = self._functions[self.name].get("properties")
        schema = properties.get(self._key) if isinstance(properties, Mapping) else None
        return _means_string(value, schema if isinstance(schema, Mapping) else {})


def _means_string(value: str, schema: Mapping[str, Any]) -> bool:
    """Whether a value is the text itself, by its schema or as it is no JSON."""
    types = schema.get("type", ())
    if types == "string" or value in schema.get("enum", ()):
        return True
    if "string" in types and value.strip() != "null":
        return True
    return not _is_json(value)


def _is_json(text: str) -> bool:
    try:
        json.loads(text, parse_constant=_refuse)
    except (ValueError, RecursionError):
        return False
    return True


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not JSON")


def _trimmed(text: str) -> str:
    return text.removeprefix("\n").removesuffix("\n")
