"""The grammar of an answer that must, or may, call functions: llguidance's dialect of Lark."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from models.closed_schema import COMBINATORS, NAMING, closed
from models.request import GenerateRequest, Grammar
from models.text.reasoning import ReasoningFormat
from models.text.tools.calls import Functions
from models.text.tools.formats import ToolFormat, Written

MOST_CALLS = 16  # of one answer that must call
JSON_KINDS = ("json_object", "json_schema")
# Fixed white space: a small model may write it for ever.
WHITE_SPACE = {"whitespace_flexible": False, "item_separator": ", ", "key_separator": ": "}
ANY_OBJECT = {"type": "object"}


@dataclass(frozen=True, slots=True)
class TokenIds:
    """What of a tokenizer its grammars name by ids."""

    of: Callable[[str], int | None]  # the token of just this text
    control: frozenset[int]  # those that are no text


def whole_grammar(
    request: GenerateRequest,
    functions: Functions,
    format: ToolFormat,
    reasoning: ReasoningFormat | None,
    *,
    opened: bool,
    ids: TokenIds,
) -> Grammar | None:
    """What the request's own grammar and its tools ask for together, behind the reasoning.

    A required call stands in for the answer; where the answer is JSON a call may.
    """
    answer, required = request.grammar, request.tool_choice.mode == "required"
    if not required and (answer is None or answer.kind not in JSON_KINDS):
        return answer
    if answer is not None and not (required or functions or reasoning):
        return answer
    rules = ["start: " + _start(reasoning, opened)]
    if reasoning is not None:
        rules += _reasoning_rules(reasoning, ids)
    if answer is None or required:
        rules += ["said: calls"]
    elif (schema := _schema(answer)) is not None:
        rules += ["said: answer" + " | calls" * bool(functions), f"answer: {_json(schema)}"]
    else:
        return answer
    if functions:
        rules += _call_rules(request, functions, format)
    param = "tools" if required or answer is None else answer.param
    return Grammar("lark", "\n".join(rules) + "\n", param)


def _start(reasoning: ReasoningFormat | None, opened: bool) -> str:
    if reasoning is None:
        return "said"
    return "thought space said" if opened else "said | thinking space said"


def _reasoning_rules(reasoning: ReasoningFormat, ids: TokenIds) -> Iterator[str]:
    yield "space: /[ \\n]{0,4}/"
    begin, end = ids.of(reasoning.begin), ids.of(reasoning.end)
    yield f"thinking: {_text(reasoning.begin) if begin is None else f'<[{begin}]>'} thought"
    if end is None:
        yield f"thought[suffix={_text(reasoning.end)}]: /(?s:.*)/"
    else:
        # By tokens, so that it may end within a character.
        yield f"thought: within* <[{end}]>"
        yield f"within: <[^{_ranges({*ids.control, end})}]>"


def _call_rules(
    request: GenerateRequest, functions: Functions, format: ToolFormat
) -> Iterator[str]:
    choice, form = request.tool_choice, format.written or Written()
    names = [choice.name] if choice.name is not None else list(functions)
    several = f"call ({_text(form.between)} call){{0,{MOST_CALLS - 1}}}"
    if choice.name is not None or not choice.parallel:
        yield "calls: call"
    elif form.around is None:
        yield f"calls: {several}"
    else:
        before, after = map(_text, form.around)
        yield f"calls: call | {before} {several} {after}"
    yield "call: " + " | ".join(f"call_{i}" for i in range(len(names)))
    for i, name in enumerate(names):
        head = f'{form.before}{{"name": {json.dumps(name)}, "{form.key}": '
        yield f"call_{i}: {_text(head)} arguments_{i} {_text('}' + form.after)}"
        yield f"arguments_{i}: {_json(_arguments(functions[name]))}"


def _arguments(schema: Mapping[str, Any]) -> Any:
    """A function that tells of no parameters takes none."""
    told = schema.keys() & (NAMING | COMBINATORS)
    return closed({**ANY_OBJECT, **({} if told else {"properties": {}}), **schema})


def _schema(answer: Grammar) -> Any:
    """None for what is no JSON, which is for the compiler to tell."""
    try:
        return closed(json.loads(answer.source)) if answer.kind == "json_schema" else ANY_OBJECT
    except (ValueError, RecursionError):
        return None


def _json(schema: Any) -> str:
    if isinstance(schema, Mapping):
        schema = {"x-guidance": WHITE_SPACE, **schema}
    return f"%json {json.dumps(schema)}"


def _ranges(ids: Iterable[int]) -> str:
    ordered = sorted(ids)
    runs = (list(run) for _, run in groupby(enumerate(ordered), lambda pair: pair[1] - pair[0]))
    return ",".join(f"{run[0][1]}-{run[-1][1]}" for run in runs)


def _text(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)
