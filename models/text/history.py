"""The messages of a chat as templates expect them, also templates that know nothing of calls."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import Any

from models.request import ChatPrompt

Message = dict[str, Any]

REASONING = ("reasoning_content", "reasoning", "thinking")  # what templates call it
INSTRUCTIONS = """\
You can call functions. These are their definitions, one a line:
{definitions}
To call a function, answer with nothing but JSON of this form: \
{{"name": <its name>, "arguments": {{<its arguments>}}}}
To call several, answer with an array of such objects."""


@dataclass(frozen=True, slots=True)
class Known:
    """What a template has words for."""

    developer: bool
    tools: bool
    calls: bool
    results: bool  # messages of the role ``tool``
    null: bool  # content that is null

    @classmethod
    def of(cls, source: str) -> Known:
        """By its text."""
        return cls(
            developer="developer" in source,
            tools=re.search(r"\btools\b", source) is not None,
            calls="tool_calls" in source,
            results=re.search(r"""['"]tool['"]""", source) is not None,
            null=re.search(r"""\bcontent\b['"\]]*\s+is\s+(not\s+)?none\b""", source) is not None,
        )


class Arguments(dict[str, Any]):
    """A call's arguments: a mapping, and JSON where a template prints it or adds it to text."""

    def __init__(self, text: str, value: Mapping[str, Any]) -> None:
        super().__init__(value)
        self._text = text

    def __str__(self) -> str:
        return self._text

    def __add__(self, other: str) -> str:
        return self._text + other

    def __radd__(self, other: str) -> str:
        return other + self._text


def adapted(prompt: ChatPrompt, known: Known) -> list[Message]:
    """New messages for a template. What it has no words for is told in words."""
    messages = _merged([_adapt(message, known) for message in _with_names(prompt.messages)])
    if not known.results:
        messages = list(_results_told(messages))
    if prompt.tools and not known.tools:
        messages = _with_instructions(messages, prompt.tools)
    return messages


def _merged(messages: list[Message]) -> list[Message]:
    """The system's messages at the beginning as one: many templates take no second one."""
    first = list(takewhile(lambda message: message["role"] == "system", messages))
    if len(first) < 2:
        return messages
    text = "\n\n".join(message["content"] for message in first)
    return [{**first[0], "content": text}, *messages[len(first) :]]


def _adapt(message: Message, known: Known) -> Message:
    role = message["role"]
    if role == "developer" and not known.developer:
        message["role"] = "system"
    reasoning = message.get("reasoning_content") or message.get("reasoning")
    if reasoning:
        message |= dict.fromkeys(REASONING, reasoning)
    if message.get("tool_calls"):
        _adapt_calls(message, known)
    return message


def _adapt_calls(message: Message, known: Known) -> None:
    message["tool_calls"] = [_parsed(call) for call in message["tool_calls"]]
    if not known.calls:
        told = _calls_told(message["tool_calls"])
        message["content"] = "\n".join(text for text in (message["content"], told) if text)
    elif known.null and not message["content"]:
        message["content"] = None


def _parsed(call: Mapping[str, Any]) -> Message:
    function = call["function"]
    text = function["arguments"]
    arguments = _object(text)
    parsed = text if arguments is None else Arguments(text, arguments)
    return {**call, "function": {**function, "arguments": parsed}}


def _object(text: str) -> Mapping[str, Any] | None:
    try:
        value = json.loads(text or "{}")
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _with_names(messages: Sequence[Mapping[str, Any]]) -> Iterator[Message]:
    """Results of calls tell the function's name too, which some templates want."""
    names: dict[str, str] = {}
    for message in map(_without_functions, messages):
        for call in message.get("tool_calls", ()):
            names[call.get("id", "")] = call["function"]["name"]
        name = names.get(message.get("tool_call_id", ""))
        yield {**message, **({} if name is None else {"name": name})}


def _without_functions(message: Mapping[str, Any]) -> Message:
    """OpenAI's older form of a call and its result in the newer one."""
    modern = {key: value for key, value in message.items() if key != "function_call"}
    if call := message.get("function_call"):
        modern.setdefault("tool_calls", [{"id": "", "type": "function", "function": call}])
    if message["role"] == "function":
        modern["role"] = "tool"
    return modern


def _calls_told(calls: Sequence[Mapping[str, Any]]) -> str:
    told = [
        {"name": call["function"]["name"], "arguments": call["function"]["arguments"]}
        for call in calls
    ]
    return json.dumps(told[0] if len(told) == 1 else told, ensure_ascii=False)


def _results_told(messages: Sequence[Message]) -> Iterator[Message]:
    """Results in a row become one message of the user."""
    told: list[str] = []
    for message in messages:
        if message["role"] == "tool":
            told.append(f"Result of {message.get('name', 'the call')}: {message['content']}")
            continue
        if told:
            yield {"role": "user", "content": "\n".join(told)}
            told = []
        yield message
    if told:
        yield {"role": "user", "content": "\n".join(told)}


def _with_instructions(
    messages: list[Message], tools: Sequence[Mapping[str, Any]]
) -> list[Message]:
    definitions = "\n".join(json.dumps(tool["function"], ensure_ascii=False) for tool in tools)
    told = INSTRUCTIONS.format(definitions=definitions)
    if messages[0]["role"] in ("system", "developer"):
        first = {**messages[0], "content": f"{messages[0]['content']}\n\n{told}"}
        return [first, *messages[1:]]
    return [{"role": "system", "content": told}, *messages]
