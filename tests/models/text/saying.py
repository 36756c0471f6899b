"""What parsers make of a text, however it is cut."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from models.events import Part, Reasoning, Text, ToolCall
from models.text.parsing import AnswerParser, ReasonedParser
from models.text.tools.formats import FORMATS
from models.text.tools.parser import ToolParser

FUNCTIONS: dict[str, dict[str, Any]] = {
    "get_weather": {
        "type": "object",
        "properties": {
            "city": {"type": "string"},
            "days": {"type": "integer"},
            "unit": {"enum": ["C", "F"]},
            "zip": {"type": ["string", "null"]},
        },
    },
    "now": {},
}

Said = list[tuple[str, ...]]


def calling(name: str) -> Callable[[], AnswerParser]:
    """Makes parsers of one format of calls."""
    return lambda: ReasonedParser(None, ToolParser(FORMATS[name], FUNCTIONS))


def said(parts: Iterable[Part]) -> Said:
    """The parts joined: content, reasoning, and calls with name and arguments."""
    result: Said = []
    ids: set[str] = set()
    calls = 0
    for part in parts:
        if isinstance(part, ToolCall) and part.id is not None:
            assert part.id not in ids
            ids.add(part.id)
            assert part.index == calls
            calls += 1
            result.append(("call", str(part.name), part.arguments))
        elif isinstance(part, ToolCall):
            assert (part.name, part.index) == (None, calls - 1)
            assert part.arguments
            kind, name, arguments = result[-1]
            assert kind == "call"
            result[-1] = (kind, name, arguments + part.arguments)
        else:
            _say("reasoning" if isinstance(part, Reasoning) else "text", part, result)
    return result


def _say(kind: str, part: Reasoning | Text, result: Said) -> None:
    assert part.delta
    if result and result[-1][0] == kind:
        result[-1] = (kind, result[-1][1] + part.delta)
    else:
        result.append((kind, part.delta))


def cuts(text: str) -> Iterator[Sequence[str]]:
    """One piece, one character a piece, two pieces, and three around a short one."""
    yield [text]
    yield list(text)
    for i in range(len(text)):
        yield [text[:i], text[i:]]
        yield [text[:i], text[i : i + 3], text[i + 3 :]]


def say(make: Callable[[], AnswerParser], text: str) -> Said:
    """What is said, the same for every way to cut the text."""
    results = [_run(make(), pieces) for pieces in cuts(text)]
    assert all(result == results[0] for result in results)
    return results[0]


def _run(parser: AnswerParser, pieces: Iterable[str]) -> Said:
    parts = [part for piece in pieces for part in parser.push(piece)]
    return said([*parts, *parser.flush()])
