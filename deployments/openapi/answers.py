"""Schemas of answers, as the routes write them."""

from __future__ import annotations

from typing import Any

Schema = dict[str, Any]

TEXT: Schema = {"type": "string"}
COUNT: Schema = {"type": "integer", "minimum": 0}
FLAG: Schema = {"type": "boolean"}
NULL: Schema = {"type": "null"}
ANY_OBJECT: Schema = {"type": "object"}


def constant(value: str) -> Schema:
    """Just this string."""
    return {"type": "string", "const": value}


def one_of(*values: str) -> Schema:
    """One of these strings."""
    return {"type": "string", "enum": list(values)}


def nullable(schema: Schema) -> Schema:
    """The schema, or null."""
    return {"anyOf": [schema, NULL]}


def array(items: Schema) -> Schema:
    """A list."""
    return {"type": "array", "items": items}


def fields(optional: dict[str, Schema] | None = None, /, **required: Schema) -> Schema:
    """An object that has all of these, perhaps the optional ones, and no others."""
    return {
        "type": "object",
        "properties": {**required, **(optional or {})},
        "required": list(required),
        "additionalProperties": False,
    }


def ref(name: str) -> Schema:
    """A schema of the document."""
    return {"$ref": f"#/components/schemas/{name}"}


STOP = nullable({"type": ["string", "integer"]})
# What other parameters may add to a choice is told by OpenAI's own document.
MESSAGE: Schema = {
    "type": "object",
    "properties": {
        "role": constant("assistant"),
        "content": nullable(TEXT),
        "refusal": NULL,
    },
    "required": ["role", "content", "refusal"],
}
CHOICE = {
    "index": COUNT,
    "logprobs": nullable(ANY_OBJECT),
    "finish_reason": one_of("stop", "length", "tool_calls"),
    "stop_reason": STOP,
}
HEADING = {
    "id": TEXT,
    "created": COUNT,
    "model": TEXT,
    "system_fingerprint": TEXT,
    "usage": ref("Usage"),
}
# Numbers, or the base64 of little-endian float32.
VECTOR: Schema = {"anyOf": [array({"type": "number"}), TEXT]}
# Where they are asked for.
OF_PROMPT = {"prompt_logprobs": array(nullable(ANY_OBJECT)), "prompt_token_ids": array(COUNT)}
RESPONSE_STATES = ("completed", "incomplete", "in_progress", "failed")


def _open(**required: Schema) -> Schema:
    return {"type": "object", "properties": required, "required": list(required)}


ANSWERS: dict[str, Schema] = {
    "Usage": _open(prompt_tokens=COUNT, completion_tokens=COUNT, total_tokens=COUNT),
    "Chat": fields(
        OF_PROMPT,
        object=constant("chat.completion"),
        choices=array(_open(message=MESSAGE, **CHOICE)),
        **HEADING,
    ),
    "Completion": fields(
        object=constant("text_completion"),
        choices=array(_open(text=TEXT, **CHOICE)),
        **HEADING,
    ),
    "Model": fields(
        id=TEXT,
        object=constant("model"),
        created=COUNT,
        owned_by=TEXT,
        max_model_len=COUNT,
        task=one_of("generate", "embed"),
    ),
    "ModelList": fields(object=constant("list"), data=array(ref("Model"))),
    "Embeddings": fields(
        object=constant("list"),
        data=array(fields(object=constant("embedding"), index=COUNT, embedding=VECTOR)),
        model=TEXT,
        usage=fields(prompt_tokens=COUNT, total_tokens=COUNT),
    ),
    "Tokens": fields(
        count=COUNT, max_model_len=COUNT, tokens=array(COUNT), token_strs=nullable(array(TEXT))
    ),
    "Detokenized": fields(prompt=TEXT),
    "InputTokens": fields(object=constant("response.input_tokens"), input_tokens=COUNT),
    "Error": fields(
        error=fields(message=TEXT, type=TEXT, param=nullable(TEXT), code=nullable(TEXT))
    ),
    "Message": fields(
        id=TEXT,
        type=constant("message"),
        role=constant("assistant"),
        model=TEXT,
        content=array(_open(type=TEXT)),
        stop_reason=one_of(
            "end_turn", "max_tokens", "stop_sequence", "tool_use", "model_context_window_exceeded"
        ),
        stop_sequence=nullable(TEXT),
        usage=_open(input_tokens=COUNT, output_tokens=COUNT),
    ),
    "MessageTokens": fields(input_tokens=COUNT),
    "MessageError": fields(
        type=constant("error"), error=fields(type=TEXT, message=TEXT), request_id=TEXT
    ),
    "Response": _open(
        id=TEXT,
        object=constant("response"),
        created_at=COUNT,
        completed_at=nullable(COUNT),
        status=one_of(*RESPONSE_STATES),
        error=nullable(_open(code=TEXT, message=TEXT)),
        incomplete_details=nullable(_open(reason=TEXT)),
        instructions=nullable(TEXT),
        max_output_tokens=nullable(COUNT),
        metadata=ANY_OBJECT,
        model=TEXT,
        output=array(_open(type=TEXT, id=TEXT, status=one_of(*RESPONSE_STATES[:3]))),
        parallel_tool_calls=FLAG,
        previous_response_id=nullable(TEXT),
        store=FLAG,
        temperature={"type": "number"},
        text=ANY_OBJECT,
        tool_choice={"type": ["string", "object"]},
        tools=array(ANY_OBJECT),
        top_p={"type": "number"},
        usage=_open(input_tokens=COUNT, output_tokens=COUNT, total_tokens=COUNT),
    ),
    "DeletedResponse": fields(
        id=TEXT, object=constant("response"), deleted={"type": "boolean", "const": True}
    ),
    "ResponseItems": fields(
        object=constant("list"),
        data=array(_open(type=TEXT, id=TEXT)),
        first_id=nullable(TEXT),
        last_id=nullable(TEXT),
        has_more=FLAG,
    ),
    # Of a stream: its data are JSON, but for OpenAI's [DONE].
    "Event": fields({"event": TEXT}, data=TEXT),
    "Health": fields(status=constant("ok")),
    "Ready": fields({"reason": TEXT}, status=one_of("ready", "not ready"), models=ANY_OBJECT),
}
