"""The turns of a conversation: checked, as plain messages for a model's chat template."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from deployments.openai.checks import Location, require_array, require_object, string_of
from deployments.openai.errors import invalid, not_one_of, spell

Message = dict[str, Any]

ROLES = ("user", "assistant", "system")
CALLED = "After tool_use blocks their tool_result blocks must follow: 'messages'."


def parse_system(value: Any) -> tuple[Message, ...]:
    """The system prompt: a text or text blocks, none if empty. Raises ``ApiError``."""
    text = "" if value is None else _text(value, ("system",))
    return ({"role": "system", "content": text},) if text else ()


def parse_turns(values: Sequence[Any]) -> tuple[Message, ...]:
    """Raises ``ApiError`` naming the field, such as ``messages[1].content[0].type``."""
    messages = [
        message for i, value in enumerate(values) for message in _turn(value, ("messages", i))
    ]
    if messages and messages[-1].get("tool_calls"):
        raise invalid(CALLED, "messages", "invalid_value")
    return tuple(_combined(messages))


def _turn(value: Any, at: Location) -> list[Message]:
    require_object(value, at)
    role, content, here = value.get("role"), value.get("content"), (*at, "content")
    if role not in ROLES:
        raise not_one_of(spell((*at, "role")), ROLES)
    for key in value.keys() - {"role", "content"}:
        name = spell((*at, key))
        raise invalid(f"{name}: Extra inputs are not permitted", name, "unknown_parameter")
    if isinstance(content, str) or role == "system":
        return [{"role": role, "content": _text(content, here)}]
    require_array(content, here, "a string or an array")
    turn = _Turn(role)
    for i, block in enumerate(content):
        turn.add(block, (*here, i))
    return turn.messages()


class _Turn:
    """One turn as its blocks come. Results of tools become messages before the turn's own text."""

    def __init__(self, role: str) -> None:
        self._role = role
        self._texts: list[str] = []
        self._thoughts: list[str] = []
        self._calls: list[Message] = []
        self._results: list[Message] = []

    def add(self, block: Any, at: Location) -> None:
        require_object(block, at)
        read = self._readers().get(str(block.get("type")))
        if read is None:
            name = spell((*at, "type"))
            message = f"Content blocks of type '{block.get('type')}' are not supported in the "
            message += f"role '{self._role}': '{name}'. This server takes text only."
            raise invalid(message, name, "unsupported_value")
        read(block, at)

    def messages(self) -> list[Message]:
        said: Message = {"role": self._role, "content": "\n".join(self._texts)}
        if self._thoughts:
            said["reasoning_content"] = "\n".join(self._thoughts)
        if self._calls:
            said["tool_calls"] = self._calls
        empty = self._results and not self._texts
        return self._results if empty else [*self._results, said]

    def _readers(self) -> Mapping[str, Callable[[Message, Location], None]]:
        if self._role == "user":
            return {"text": self._read_text, "tool_result": self._read_result}
        return {
            "text": self._read_text,
            "thinking": self._read_thought,
            "redacted_thinking": self._pass_over,
            "tool_use": self._read_call,
        }

    def _read_text(self, block: Message, at: Location) -> None:
        self._texts.append(string_of(block, "text", at))

    def _read_thought(self, block: Message, at: Location) -> None:
        if thought := string_of(block, "thinking", at):
            self._thoughts.append(thought)

    def _pass_over(self, block: Message, at: Location) -> None:
        """What another server's model thought, which only that server can read."""
        string_of(block, "data", at)

    def _read_call(self, block: Message, at: Location) -> None:
        given = require_object(block.get("input"), (*at, "input"))
        arguments = json.dumps(given, ensure_ascii=False)
        function = {"name": string_of(block, "name", at), "arguments": arguments}
        id = string_of(block, "id", at)
        self._calls.append({"id": id, "type": "function", "function": function})

    def _read_result(self, block: Message, at: Location) -> None:
        id = string_of(block, "tool_use_id", at)
        content = block.get("content")
        text = "" if content is None else _text(content, (*at, "content"))
        self._results.append({"role": "tool", "tool_call_id": id, "content": text})


def _text(value: Any, at: Location) -> str:
    if isinstance(value, str):
        return value
    require_array(value, at, "a string or an array of text blocks")
    return "\n".join(_text_block(block, (*at, i)) for i, block in enumerate(value))


def _text_block(block: Any, at: Location) -> str:
    require_object(block, at)
    if block.get("type") != "text":
        name = spell((*at, "type"))
        message = f"Only text is supported here, not '{block.get('type')}': '{name}'."
        raise invalid(message, name, "unsupported_value")
    return string_of(block, "text", at)


def _combined(messages: Iterable[Message]) -> Iterable[Message]:
    """Turns of one role that follow each other are one turn."""
    last: Message | None = None
    for message in messages:
        plain = message.keys() == {"role", "content"} and message["role"] != "tool"
        if last is not None and plain and last["role"] == message["role"]:
            last["content"] = f"{last['content']}\n{message['content']}"
            continue
        if last is not None:
            yield last
        last = dict(message)
    if last is not None:
        yield last
