"""Schemas of answers, as the routes write them."""

from __future__ import annotations

from typing import get_args

from deployments.batches.wire import WINDOW, Endpoint, Status
from deployments.openapi.schema import (
    ANY_OBJECT,
    COUNT,
    FLAG,
    NULL,
    STRING,
    Schema,
    constant,
    either,
    fields,
    having,
    listed,
    one_of,
    or_null,
    ref,
)

STOP = or_null({"type": ["string", "integer"]})
# What other parameters may add to a choice is told by OpenAI's own document.
MESSAGE: Schema = {
    "type": "object",
    "properties": {
        "role": constant("assistant"),
        "content": or_null(STRING),
        "refusal": NULL,
    },
    "required": ["role", "content", "refusal"],
}
CHOICE = {
    "index": COUNT,
    "logprobs": or_null(ANY_OBJECT),
    "finish_reason": one_of("stop", "length", "tool_calls"),
    "stop_reason": STOP,
}
HEADING = {
    "id": STRING,
    "created": COUNT,
    "model": STRING,
    "system_fingerprint": STRING,
    "usage": ref("Usage"),
}
# Numbers, or the base64 of little-endian float32.
VECTOR: Schema = {"anyOf": [listed({"type": "number"}), STRING]}
# Where they are asked for.
OF_PROMPT = {"prompt_logprobs": listed(or_null(ANY_OBJECT)), "prompt_token_ids": listed(COUNT)}
RESPONSE_STATES = ("completed", "incomplete", "in_progress", "failed")

BATCH_ERROR = fields(code=STRING, message=STRING, line=or_null(COUNT), param=or_null(STRING))


def listing(name: str) -> Schema:
    """A page of them."""
    return fields(
        object=constant("list"),
        data=listed(ref(name)),
        first_id=or_null(STRING),
        last_id=or_null(STRING),
        has_more=FLAG,
    )


ANSWERS: dict[str, Schema] = {
    "Usage": having(prompt_tokens=COUNT, completion_tokens=COUNT, total_tokens=COUNT),
    "Chat": fields(
        OF_PROMPT,
        object=constant("chat.completion"),
        choices=listed(having(message=MESSAGE, **CHOICE)),
        **HEADING,
    ),
    "Completion": fields(
        object=constant("text_completion"),
        choices=listed(having(text=STRING, **CHOICE)),
        **HEADING,
    ),
    "Model": either(  # the second to who sends `anthropic-version`, here and below
        fields(
            id=STRING,
            object=constant("model"),
            created=COUNT,
            owned_by=STRING,
            max_model_len=or_null(COUNT),
            task=one_of("generate", "embed"),
            root=STRING,
            parent=or_null(STRING),
        ),
        ref("ModelInfo"),
    ),
    "ModelInfo": fields(
        type=constant("model"),
        id=STRING,
        display_name=STRING,
        created_at=STRING,
        lifecycle=constant("active"),
        max_input_tokens=or_null(COUNT),
        max_tokens=or_null(COUNT),
    ),
    "ModelPage": fields(
        data=listed(ref("ModelInfo")),
        has_more=FLAG,
        first_id=or_null(STRING),
        last_id=or_null(STRING),
    ),
    "ModelList": either(
        fields(object=constant("list"), data=listed(ref("Model"))), ref("ModelPage")
    ),
    "ModelsError": either(ref("Error"), ref("MessageError")),
    "Embeddings": fields(
        object=constant("list"),
        data=listed(fields(object=constant("embedding"), index=COUNT, embedding=VECTOR)),
        model=STRING,
        usage=fields(prompt_tokens=COUNT, total_tokens=COUNT),
    ),
    "Tokens": fields(
        count=COUNT, max_model_len=COUNT, tokens=listed(COUNT), token_strs=or_null(listed(STRING))
    ),
    "Detokenized": fields(prompt=STRING),
    "TokenizerInfo": having(
        chat_template=or_null(STRING),
        eos_token_ids=listed(COUNT),
        vocab_size=COUNT,
        model_max_length=COUNT,
    ),
    "Aborted": fields(aborted=COUNT),
    "ResetPrefixCache": fields(
        kv_blocks={"type": "object", "additionalProperties": or_null(COUNT)}
    ),
    "InputTokens": fields(object=constant("response.input_tokens"), input_tokens=COUNT),
    "Error": fields(
        error=fields(message=STRING, type=STRING, param=or_null(STRING), code=or_null(STRING))
    ),
    "Message": fields(
        id=STRING,
        type=constant("message"),
        role=constant("assistant"),
        model=STRING,
        content=listed(having(type=STRING)),
        stop_reason=one_of(
            "end_turn", "max_tokens", "stop_sequence", "tool_use", "model_context_window_exceeded"
        ),
        stop_sequence=or_null(STRING),
        usage=having(input_tokens=COUNT, output_tokens=COUNT),
    ),
    "MessageTokens": fields(input_tokens=COUNT),
    "MessageError": fields(
        type=constant("error"),
        error=fields({"details": ANY_OBJECT}, type=STRING, message=STRING),
        request_id=STRING,
    ),
    "Response": having(
        id=STRING,
        object=constant("response"),
        created_at=COUNT,
        completed_at=or_null(COUNT),
        status=one_of(*RESPONSE_STATES),
        error=or_null(having(code=STRING, message=STRING)),
        incomplete_details=or_null(having(reason=STRING)),
        instructions=or_null(STRING),
        max_output_tokens=or_null(COUNT),
        metadata=ANY_OBJECT,
        model=STRING,
        output=listed(having(type=STRING, id=STRING, status=one_of(*RESPONSE_STATES[:3]))),
        parallel_tool_calls=FLAG,
        previous_response_id=or_null(STRING),
        store=FLAG,
        temperature={"type": "number"},
        text=ANY_OBJECT,
        tool_choice={"type": ["string", "object"]},
        tools=listed(ANY_OBJECT),
        top_p={"type": "number"},
        usage=having(input_tokens=COUNT, output_tokens=COUNT, total_tokens=COUNT),
    ),
    "DeletedResponse": fields(
        id=STRING, object=constant("response"), deleted={"type": "boolean", "const": True}
    ),
    "ResponseItems": fields(
        object=constant("list"),
        data=listed(having(type=STRING, id=STRING)),
        first_id=or_null(STRING),
        last_id=or_null(STRING),
        has_more=FLAG,
    ),
    "File": fields(
        id=STRING,
        object=constant("file"),
        bytes=COUNT,
        created_at=COUNT,
        expires_at=COUNT,
        filename=STRING,
        purpose=one_of("batch", "batch_output"),
        status=constant("processed"),
        status_details=NULL,
    ),
    "FileList": listing("File"),
    "DeletedFile": fields(
        id=STRING, object=constant("file"), deleted={"type": "boolean", "const": True}
    ),
    "Batch": fields(
        id=STRING,
        object=constant("batch"),
        endpoint=one_of(*get_args(Endpoint)),
        model=or_null(STRING),
        errors=or_null(fields(object=constant("list"), data=listed(BATCH_ERROR))),
        input_file_id=STRING,
        completion_window=constant(WINDOW),
        status=one_of(*get_args(Status)),
        output_file_id=or_null(STRING),
        error_file_id=or_null(STRING),
        created_at=COUNT,
        expires_at=COUNT,
        **{f"{status}_at": or_null(COUNT) for status in get_args(Status)[1:]},
        request_counts=fields(total=COUNT, completed=COUNT, failed=COUNT),
        usage=fields(
            input_tokens=COUNT,
            input_tokens_details=fields(cached_tokens=COUNT),
            output_tokens=COUNT,
            output_tokens_details=fields(reasoning_tokens=COUNT),
            total_tokens=COUNT,
        ),
        metadata=or_null(ANY_OBJECT),
    ),
    "BatchList": listing("Batch"),
    # Of a stream: its data are JSON, but for OpenAI's [DONE].
    "Event": fields({"event": STRING}, data=STRING),
    "Health": fields(status=constant("ok")),
    "Ready": fields({"reason": STRING}, status=one_of("ready", "not ready"), models=ANY_OBJECT),
}
