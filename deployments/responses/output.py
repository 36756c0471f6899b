"""The items of an answer as they grow, each with the events that tell of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from deployments.responses.items import Item, text_part
from models.events import ToolCall

# An event's name behind ``response.``, and its fields but for those that say where the item is.
Said = tuple[str, dict[str, Any]]


class Growing(Protocol):
    """An item that is open: it takes more until it is closed."""

    item: Item  # as a whole answer has it, true once it is closed

    def opening(self) -> list[Said]:
        """Behind ``output_item.added``."""
        ...

    def more(self, delta: str, logprobs: Sequence[Item] = ()) -> Said:
        """What is added, and how likely its tokens were."""
        ...

    def closing(self) -> list[Said]:
        """Before ``output_item.done``."""
        ...


class Message:
    """Text that answers."""

    def __init__(self, id: str) -> None:
        self.item: Item = {"id": id, "type": "message", "role": "assistant", "content": []}
        self._pieces: list[str] = []
        self._logprobs: list[Item] = []

    def opening(self) -> list[Said]:
        return [("content_part.added", {"content_index": 0, "part": text_part("", True)})]

    def more(self, delta: str, logprobs: Sequence[Item] = ()) -> Said:
        self._pieces.append(delta)
        self._logprobs += logprobs
        told = {"content_index": 0, "delta": delta, "logprobs": list(logprobs)}
        return "output_text.delta", told

    def closing(self) -> list[Said]:
        text = "".join(self._pieces)
        part = text_part(text, True, self._logprobs)
        self.item["content"] = [part]
        told = {"content_index": 0, "text": text, "logprobs": part["logprobs"]}
        return [
            ("output_text.done", told),
            ("content_part.done", {"content_index": 0, "part": part}),
        ]


class Thought:
    """Text that was thought."""

    def __init__(self, id: str) -> None:
        self.item: Item = {"id": id, "type": "reasoning", "summary": [], "content": []}
        self._pieces: list[str] = []

    def opening(self) -> list[Said]:
        return [("content_part.added", {"content_index": 0, "part": _thought("")})]

    def more(self, delta: str, logprobs: Sequence[Item] = ()) -> Said:
        self._pieces.append(delta)
        return "reasoning_text.delta", {"content_index": 0, "delta": delta}

    def closing(self) -> list[Said]:
        text = "".join(self._pieces)
        self.item["content"] = [_thought(text)]
        return [
            ("reasoning_text.done", {"content_index": 0, "text": text}),
            ("content_part.done", {"content_index": 0, "part": _thought(text)}),
        ]


class Call:
    """A call of a function, by its first event; ``spaces`` are of functions in namespaces."""

    def __init__(self, id: str, call: ToolCall, spaces: Mapping[str, tuple[str, str]]) -> None:
        space, name = spaces.get(call.name or "", (None, call.name))
        self.item: Item = {"id": id, "type": "function_call", "call_id": call.id}
        self.item |= {"name": name, "arguments": ""}
        if space is not None:
            self.item["namespace"] = space
        self._pieces: list[str] = []

    def opening(self) -> list[Said]:
        return []

    def more(self, delta: str, logprobs: Sequence[Item] = ()) -> Said:
        self._pieces.append(delta)
        return "function_call_arguments.delta", {"delta": delta}

    def closing(self) -> list[Said]:
        arguments = "".join(self._pieces)
        self.item["arguments"] = arguments
        told = {"name": self.item["name"], "arguments": arguments}
        return [("function_call_arguments.done", told)]


def _thought(text: str) -> Mapping[str, Any]:
    return {"type": "reasoning_text", "text": text}
