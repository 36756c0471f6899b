"""An answer that thinks, speaks and calls."""

from __future__ import annotations

from models.events import Event, Reasoning, Started, Text, ToolCall


def calling(arguments: str) -> list[Event]:
    """All but its end; ``arguments`` are those of the second call, ``now``."""
    return [
        Started(3, 0),
        Reasoning("Let "),
        Reasoning("me."),
        Text("So"),
        ToolCall(0, "call_1", "add"),
        ToolCall(0, arguments='{"a": '),
        ToolCall(0, arguments="1}"),
        ToolCall(1, "call_2", "now", arguments),
    ]
