"""Schemas of what the request models leave to others: prompts, messages, items."""

from __future__ import annotations

from deployments.anthropic.tools import EFFORTS
from deployments.openai import tools
from deployments.openapi.schema import (
    COUNT,
    FLAG,
    STRING,
    Schema,
    either,
    listed,
    or_null,
    shape,
    some,
    tagged,
)
from models.embedding import MAX_INPUTS
from models.request import MAX_STOPS

TOKENS = some({"type": "integer", "minimum": 0, "maximum": 2**63 - 1})
PROMPT = either(STRING, some(STRING), TOKENS, some(TOKENS))
# What is to be embedded.
_INPUT: Schema = {"type": "string", "minLength": 1}
INPUTS = either(
    _INPUT,
    TOKENS,
    listed(_INPUT, minItems=1, maxItems=MAX_INPUTS),
    listed(TOKENS, minItems=1, maxItems=MAX_INPUTS),
)
STOP = either(STRING, listed(STRING, maxItems=MAX_STOPS))
BIAS: Schema = {
    "type": "object",
    "propertyNames": {"pattern": "^[0-9]{1,18}$"},
    "additionalProperties": {"type": "number", "minimum": -100, "maximum": 100},
}

# Functions, and what an answer must be.
NAME: Schema = {"type": "string", "pattern": f"^{tools.NAME.pattern}$"}
_PARAMETERS = shape([], type={"const": "object"}, properties=or_null(shape([])))
_DEFINITION = {
    "name": NAME,
    "description": or_null(STRING),
    "parameters": or_null(_PARAMETERS),
    "strict": or_null(FLAG),
}
_CHAT_TOOL = tagged("function", function=shape(["name"], **_DEFINITION))
_RESPONSE_TOOL = shape(["type", "name"], type={"const": "function"}, **_DEFINITION)
_SPACE = tagged("namespace", name=STRING, tools=listed(_RESPONSE_TOOL))
_ANTHROPIC_TOOL = shape(
    ["name", "input_schema"],
    name=NAME,
    description=or_null(STRING),
    input_schema=_PARAMETERS,
    type=or_null({"const": "custom"}),
)
_NAMED = tagged("function", function=shape(["name"], name=STRING))
_MODE: Schema = {"enum": list(tools.MODES)}
_ALLOWED = shape(["type"], type={"const": "allowed_tools"})
CHAT_TOOLS: dict[str, Schema] = {
    "tools": or_null(listed(_CHAT_TOOL, maxItems=tools.MAX_TOOLS)),
    "tool_choice": or_null(either(_MODE, _NAMED, _ALLOWED)),
}
RESPONSE_TOOLS: dict[str, Schema] = {
    "tools": or_null(listed(either(_RESPONSE_TOOL, _SPACE), maxItems=tools.MAX_TOOLS)),
    "tool_choice": or_null(either(_MODE, tagged("function", name=STRING), _ALLOWED)),
}
_ANTHROPIC_CHOICE = either(
    shape(["type"], type={"enum": ["auto", "any", "none"]}), tagged("tool", name=STRING)
)
_SCHEMA_FORMAT = tagged("json_schema", schema={"type": "object"})
ANTHROPIC_OPTIONS: dict[str, Schema] = {
    "tools": or_null(listed(_ANTHROPIC_TOOL, maxItems=tools.MAX_TOOLS)),
    "tool_choice": or_null(_ANTHROPIC_CHOICE),
    "thinking": or_null(
        either(
            shape(["type"], type={"enum": ["disabled", "adaptive"]}),
            tagged("enabled", budget_tokens=COUNT),
        )
    ),
    "output_config": or_null(
        shape(
            [],
            effort=or_null({"enum": list(EFFORTS)}),
            format=or_null(_SCHEMA_FORMAT),
        )
    ),
}
_TEXT_FORMAT = shape(["type"], type={"const": "text"})
_OBJECT_FORMAT = shape(["type"], type={"const": "json_object"})
FORMAT = either(
    _TEXT_FORMAT,
    _OBJECT_FORMAT,
    tagged("json_schema", json_schema=shape([], schema=or_null({"type": "object"}))),
    _SCHEMA_FORMAT,
)
TEXT_OPTIONS = shape([], format=or_null(either(_TEXT_FORMAT, _OBJECT_FORMAT, _SCHEMA_FORMAT)))

# OpenAI's chat.
_PART = tagged("text", text=STRING)
_CONTENT = either(STRING, some(_PART))
_FUNCTION = shape(["name", "arguments"], name=STRING, arguments=STRING)
_CALLS = listed(shape(["function"], function=_FUNCTION))
CHAT = some(
    either(
        shape(
            ["role", "content"],
            role={"enum": ["system", "developer", "user"]},
            content=_CONTENT,
            name=or_null(STRING),
        ),
        shape(
            ["role"],
            role={"const": "assistant"},
            content=or_null(either(STRING, some(either(_PART, tagged("refusal", refusal=STRING))))),
            tool_calls=or_null(_CALLS),
        ),
        shape(
            ["role", "content", "tool_call_id"],
            role={"const": "tool"},
            content=_CONTENT,
            tool_call_id=STRING,
        ),
        shape(["role", "name"], role={"const": "function"}, name=STRING),
    )
)

# Anthropic's messages.
TEXT = either(STRING, listed(_PART))
_USE = tagged("tool_use", id=STRING, name=STRING, input={"type": "object"})
_RESULT = tagged("tool_result", tool_use_id=STRING)
_THOUGHT = either(tagged("thinking", thinking=STRING), tagged("redacted_thinking", data=STRING))
TURNS = some(
    either(
        shape(
            ["role", "content"],
            role={"const": "user"},
            content=either(STRING, listed(either(_PART, _RESULT))),
        ),
        shape(
            ["role", "content"],
            role={"const": "assistant"},
            content=either(STRING, listed(either(_PART, _THOUGHT, _USE))),
        ),
        shape(["role", "content"], role={"const": "system"}, content=TEXT),
    )
)

# The items of OpenAI's responses.
_TEXTS = listed(either(*(tagged(type, text=STRING) for type in ("input_text", "output_text"))))
_CALL = tagged("function_call", call_id=STRING, name=STRING, arguments=STRING)
_OUTPUT = tagged("function_call_output", call_id=STRING, output=either(STRING, _TEXTS))
_SUMMARY = listed(tagged("summary_text", text=STRING))
_REASONING = shape(["type"], type={"const": "reasoning"}, summary=or_null(_SUMMARY))
_MESSAGE = shape(
    ["role", "content"],
    type=or_null({"const": "message"}),
    role={"enum": ["user", "assistant", "system", "developer"]},
    content=either(STRING, _TEXTS),
)
_REFERENCE = shape(["id"], type=or_null({"const": "item_reference"}), id=STRING)
INPUT = either(STRING, some(either(_MESSAGE, _CALL, _OUTPUT, _REASONING, _REFERENCE)))
