"""How models write their calls, as data."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from models.text.tools.calls import CallReader, Functions, HeadedCall, JsonCall
from models.text.tools.tagged import TaggedCall, Tags


@dataclass(frozen=True, slots=True)
class Written:
    """The text around calls that are written under a grammar.

    A call is ``before``, an object with the name and under ``key`` the arguments, ``after``.
    Several have ``between`` between them, and ``around`` around all.
    """

    before: str = ""
    after: str = ""
    between: str = ", "
    around: tuple[str, str] | None = ("[", "]")
    key: str = "arguments"


@dataclass(frozen=True, slots=True)
class ToolFormat:
    """Markers are text, whether they are special tokens of a vocabulary or not.

    ``template`` is what the chat templates of such models contain, one of them. A call is a JSON
    object, or has its name in a ``head`` before its arguments, or its parts in ``tags``; the head
    may contain ``inner`` markers. ``bare``: a call may begin the answer without a marker. Under a
    grammar calls are ``written`` so; None: as plain JSON. Some templates want ids of a certain
    length.
    """

    template: tuple[str, ...]
    begins: tuple[str, ...]
    ends: tuple[str, ...] = ()
    inner: tuple[str, ...] = ()
    head: re.Pattern[str] | None = None
    tags: Tags | None = None
    bare: bool = False
    written: Written | None = None
    id_length: int | None = None

    @property
    def markers(self) -> frozenset[str]:
        """All that must be seen in the text for it to be read."""
        tags = (*self.tags.key, *self.tags.value, self.tags.end) if self.tags else ()
        return frozenset({*self.begins, *self.ends, *self.inner, *tags} - {""})

    def reader(self, functions: Functions, first: str) -> CallReader:
        """Of a call that begins with the character ``first``."""
        if self.head is not None and first != "{":
            return HeadedCall(functions, self.ends, self.head)
        if self.tags is not None and first != "{":
            return TaggedCall(functions, self.tags)
        return JsonCall(functions, self.ends)


JSON = ToolFormat(
    template=(),
    begins=("<tool_call>", "```json"),
    ends=("</tool_call>", "```"),
    bare=True,
    written=Written(),
)

# In the order in which a template is asked for them.
FORMATS: Mapping[str, ToolFormat] = {
    "mistral": ToolFormat(
        template=("[TOOL_CALLS]",),
        begins=("[TOOL_CALLS]",),
        inner=("[CALL_ID]", "[ARGS]"),
        head=re.compile(r"(?P<name>[^\s\[]+)(\[CALL_ID\][^\s\[]*)?(\[ARGS\])?"),
        id_length=9,
    ),
    "deepseek": ToolFormat(
        template=("<｜tool▁call▁begin｜>",),
        begins=("<｜tool▁calls▁begin｜>", "<｜tool▁call▁begin｜>"),
        ends=("```", "<｜tool▁call▁end｜>", "<｜tool▁calls▁end｜>"),
        inner=("<｜tool▁sep｜>",),
        head=re.compile(r"(function<｜tool▁sep｜>)?(?P<name>[^\s<]+)(\s*```json|<｜tool▁sep｜>)?"),
    ),
    "glm": ToolFormat(
        template=("<arg_key>",),
        begins=("<tool_call>",),
        ends=("</tool_call>",),
        tags=Tags(
            name=re.compile(r"(?P<name>\S+)"),
            key=("<arg_key>", "</arg_key>"),
            value=("<arg_value>", "</arg_value>"),
            end="</tool_call>",
        ),
    ),
    "qwen_coder": ToolFormat(
        template=("<function=",),
        begins=("<tool_call>",),
        ends=("</tool_call>",),
        tags=Tags(
            name=re.compile(r"<function=(?P<name>[^\s>]+)>"),
            key=("<parameter=", ">"),
            value=("", "</parameter>"),
            end="</function>",
            trim=True,
        ),
    ),
    "hermes": ToolFormat(
        template=("<tool_call>",),
        begins=("<tool_call>",),
        ends=("</tool_call>",),
        written=Written("<tool_call>\n", "\n</tool_call>", "\n", None),
    ),
    "llama": ToolFormat(
        template=("<|python_tag|>", "<|start_header_id|>"),
        begins=("<|python_tag|>",),
        bare=True,
        written=Written(between="; ", around=None, key="parameters"),
    ),
    "json": JSON,
}


def find_format(template: str) -> ToolFormat:
    """By the text of a chat template; plain JSON for one that knows of no calls."""
    found = (one for one in FORMATS.values() if any(part in template for part in one.template))
    return next(found, JSON)
