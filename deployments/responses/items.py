"""The items of an input: checked, as they are kept, and as messages for a chat template."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any
from uuid import uuid4

from deployments.openai.checks import (
    Location,
    require_array,
    require_object,
    require_string,
    string_of,
)
from deployments.openai.errors import invalid, not_one_of, spell
from deployments.responses.namespaces import joined_name

Item = dict[str, Any]

ROLES = ("user", "assistant", "system", "developer")
# Types of items, and what the ids of those that come without one begin with.
PREFIXES = {
    "message": "msg_",
    "function_call": "fc_",
    "function_call_output": "fco_",
    "reasoning": "rs_",
}
# Types of text parts, and the fields that hold their texts.
TEXTS = {
    "input_text": "text",
    "output_text": "text",
    "text": "text",
    "refusal": "refusal",
    "reasoning_text": "text",
    "summary_text": "text",
}


def parse_input(value: Any) -> list[Item]:
    """Items that are valid and have ids. Raises ``ApiError`` naming the field."""
    if isinstance(value, str):
        return [_item({"role": "user", "content": value}, ("input", 0))]
    items = require_array(value, ("input",), "a string or an array of items")
    return [_item(one, ("input", i)) for i, one in enumerate(items)]


def to_messages(instructions: str | None, items: Iterable[Item]) -> tuple[Mapping[str, Any], ...]:
    """The conversation; what one answer thought, said and called is one message."""
    messages = _Messages()
    if instructions:
        messages.say("system", instructions)
    for item in items:
        messages.add(item)
    return tuple(messages.close())


class _Messages:
    def __init__(self) -> None:
        self._messages: list[Item] = []
        self._answer: Item = {}

    def add(self, item: Item) -> None:
        match item["type"]:
            case "message":
                self.say(item["role"], joined(item["content"]))
            case "reasoning":
                self._fresh("reasoning_content", "content", "tool_calls")
                self._answer["reasoning_content"] = _thoughts(item)
            case "function_call":
                name = joined_name(item.get("namespace"), item["name"])
                function = {"name": name, "arguments": item["arguments"]}
                call = {"id": item["call_id"], "type": "function", "function": function}
                self._answer.setdefault("tool_calls", []).append(call)
            case "function_call_output":
                content = joined(item["output"])
                self._messages = self.close()
                result = {"role": "tool", "tool_call_id": item["call_id"], "content": content}
                self._messages.append(result)

    def say(self, role: str, text: str) -> None:
        if role == "assistant":
            self._fresh("content", "tool_calls")
            self._answer["content"] = text
        else:
            self._messages = [*self.close(), {"role": role, "content": text}]

    def close(self) -> list[Item]:
        """All messages so far; another item begins a new one."""
        if self._answer:
            self._messages.append({"role": "assistant", "content": "", **self._answer})
            self._answer = {}
        return self._messages

    def _fresh(self, *fields: str) -> None:
        """Begins a new answer if the open one has any of these."""
        if self._answer.keys() & set(fields):
            self.close()


def joined(content: str | Sequence[Mapping[str, Any]]) -> str:
    """The text of a content that was checked."""
    if isinstance(content, str):
        return content
    return "\n".join(part[TEXTS[part["type"]]] for part in content)


def _thoughts(item: Item) -> str:
    return joined(item.get("content") or item["summary"])


def _item(value: Any, at: Location) -> Item:
    require_object(value, at)
    kind = value.get("type")
    if kind is None:
        kind = "message" if "role" in value else None
    readers = {
        "message": _message,
        "function_call": _call,
        "function_call_output": _output,
        "reasoning": _reasoning,
    }
    if not isinstance(kind, str) or kind not in readers:
        name = spell((*at, "type"))
        message = f"Items of this type are not supported by this server: '{name}'."
        raise invalid(message, name, "unsupported_value")
    id = value.get("id")
    if id is not None:
        require_string(id, (*at, "id"))
    return {
        "type": kind,
        "id": id or PREFIXES[kind] + uuid4().hex,
        "status": "completed",
        **readers[kind](value, at),
    }


def _message(value: Item, at: Location) -> Item:
    role, content = value.get("role"), value.get("content")
    if role not in ROLES:
        raise not_one_of(spell((*at, "role")), ROLES)
    assistant = role == "assistant"
    if isinstance(content, str):
        return {"role": role, "content": [text_part(content, assistant)]}
    parts = _parts(content, (*at, "content"))
    texts = [text_part(joined([part]), assistant) for part in parts]
    return {"role": role, "content": texts}


def text_part(text: str, output: bool, logprobs: Sequence[Item] = ()) -> Item:
    """A part of a message's content."""
    if output:
        told = {"annotations": [], "logprobs": list(logprobs)}
        return {"type": "output_text", "text": text, **told}
    return {"type": "input_text", "text": text}


def _call(value: Item, at: Location) -> Item:
    keys = ["call_id", "name", "arguments"]
    if value.get("namespace") is not None:
        keys.append("namespace")
    return {key: string_of(value, key, at) for key in keys}


def _output(value: Item, at: Location) -> Item:
    output = value.get("output")
    if not isinstance(output, str):
        _parts(output, (*at, "output"))
    return {"call_id": string_of(value, "call_id", at), "output": output}


def _reasoning(value: Item, at: Location) -> Item:
    summary, content = value.get("summary"), value.get("content")
    return {
        "summary": _parts([] if summary is None else summary, (*at, "summary")),
        "content": _parts([] if content is None else content, (*at, "content")),
    }


def _parts(value: Any, at: Location) -> list[Item]:
    require_array(value, at, "a string or an array of text parts")
    for i, part in enumerate(value):
        _check_part(part, (*at, i))
    return list(value)


def _check_part(part: Any, at: Location) -> None:
    require_object(part, at)
    kind = part.get("type")
    if not isinstance(kind, str) or kind not in TEXTS:
        name = spell((*at, "type"))
        message = f"Content parts of this type are not supported: '{name}'. Text only."
        raise invalid(message, name, "unsupported_value")
    string_of(part, TEXTS[kind], at)
