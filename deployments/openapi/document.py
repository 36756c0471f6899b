"""The document: every route, what it takes and what it answers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from deployments.openapi.answers import ANSWERS
from deployments.openapi.bodies import bodies
from deployments.openapi.schema import STRING, Schema, ref

JSON, EVENTS, PLAIN = "application/json", "text/event-stream", "text/plain"
FORM, BYTES = "multipart/form-data", "application/octet-stream"
# Which statuses tell of what, in either dialect's form.
REASONS = {
    400: "The request is wrong; the error names the parameter.",
    401: "No key was given, or a wrong one.",
    404: "There is no such model, response, file or batch, or the server has none of these.",
    408: "The body did not arrive in time.",
    413: "The body is too large.",
    429: "The key has used what its limits allow; `retry-after` tells when to ask again.",
    500: "The server or the model failed.",
    503: "There is no room now, or no replica; `retry-after` tells when to ask again.",
    504: "The model gave no answer in time.",
    529: "There is no room now, or no replica; `retry-after` tells when to ask again.",
}
OWN = (400, 401, 404, 408, 413, 500, 503, 504)
ANTHROPICS = (400, 401, 404, 408, 413, 500, 529, 504)


@dataclass(frozen=True, slots=True)
class Operation:
    """One method of one path; ``body`` and ``answer`` are names of schemas."""

    method: str
    path: str
    summary: str
    answer: str
    body: tuple[str, ...] = ()
    streams: bool = False
    error: str = "Error"
    statuses: tuple[int, ...] = OWN
    query: tuple[tuple[str, Schema], ...] = ()
    media: str = JSON  # of the body


def _limit(most: int, default: int) -> Schema:
    return {"type": "integer", "minimum": 1, "maximum": most, "default": default}


ORDER = ("order", {"type": "string", "enum": ["asc", "desc"], "default": "desc"})
AFTER = ("after", STRING)
PAGES = (("limit", _limit(100, 20)), ORDER, AFTER)
TOKENIZE = ("TokenizePromptRequest", "TokenizeChatRequest")
ASKED_TOKENS = (400, 401, 404, 500, 503, 504)
ASKED, CLOSED = (400, 401, 404, 500, 503), (401, 500, 504)
GENERATION = (
    Operation("post", "/v1/chat/completions", "Answer a chat", "Chat", ("ChatRequest",), True),
    Operation(
        "post", "/v1/completions", "Go on with a text", "Completion", ("CompletionRequest",), True
    ),
    Operation("post", "/v1/responses", "Answer items", "Response", ("ResponseRequest",), True),
    Operation(
        "post",
        "/v1/messages",
        "Answer messages",
        "Message",
        ("MessageRequest",),
        True,
        "MessageError",
        ANTHROPICS,
    ),
)
EMBEDDING = (
    Operation("post", "/v1/embeddings", "Embed texts", "Embeddings", ("EmbeddingsRequest",)),
)
COUNTING = (
    *(
        Operation("post", f"{prefix}/tokenize", "Tokens of a prompt", "Tokens", TOKENIZE)
        for prefix in ("", "/v1")
    ),
    *(
        Operation(
            "post", f"{prefix}/detokenize", "Text of tokens", "Detokenized", ("DetokenizeRequest",)
        )
        for prefix in ("", "/v1")
    ),
    Operation(
        "get",
        "/tokenizer_info",
        "A model's special tokens and chat template",
        "TokenizerInfo",
        statuses=ASKED_TOKENS,
        query=(("model", STRING),),
    ),
    Operation(
        "post",
        "/v1/chat/completions/input_tokens",
        "Count a chat's tokens",
        "InputTokens",
        ("ChatRequest",),
    ),
    Operation(
        "post",
        "/v1/responses/input_tokens",
        "Count the tokens of items",
        "InputTokens",
        ("ResponseRequest",),
    ),
    Operation(
        "post",
        "/v1/messages/count_tokens",
        "Count the tokens of messages",
        "MessageTokens",
        ("MessageTokensRequest",),
        error="MessageError",
        statuses=ANTHROPICS,
    ),
)
KEPT = (
    Operation("get", "/v1/responses/{id}", "A kept response", "Response", statuses=ASKED),
    Operation(
        "delete", "/v1/responses/{id}", "Forget a response", "DeletedResponse", statuses=ASKED
    ),
    Operation("post", "/v1/responses/{id}/cancel", "Cancel a response", "", statuses=ASKED),
    Operation(
        "get",
        "/v1/responses/{id}/input_items",
        "The items that a response answers",
        "ResponseItems",
        statuses=ASKED,
        query=PAGES,
    ),
)
FILES = (
    Operation(
        "post",
        "/v1/files",
        "Upload the input of a batch",
        "File",
        ("FileForm",),
        media=FORM,
    ),
    Operation(
        "get",
        "/v1/files",
        "All files",
        "FileList",
        statuses=ASKED,
        query=(("purpose", STRING), ("limit", _limit(10_000, 10_000)), ORDER, AFTER),
    ),
    Operation("get", "/v1/files/{id}", "A file", "File", statuses=ASKED),
    Operation("delete", "/v1/files/{id}", "Delete a file", "DeletedFile", statuses=ASKED),
    Operation("get", "/v1/files/{id}/content", "What a file holds", "", statuses=ASKED),
)
BATCHES = (
    Operation("post", "/v1/batches", "Run a batch of requests", "Batch", ("BatchRequest",)),
    Operation(
        "get",
        "/v1/batches",
        "All batches",
        "BatchList",
        statuses=ASKED,
        query=(("limit", _limit(100, 20)), AFTER),
    ),
    Operation("get", "/v1/batches/{id}", "A batch", "Batch", statuses=ASKED),
    Operation("post", "/v1/batches/{id}/cancel", "Cancel a batch", "Batch", statuses=ASKED),
)
OPERATORS = (
    Operation("post", "/abort_requests", "End requests by their ids", "Aborted", ("AbortRequest",)),
    Operation(
        "post", "/reset_prefix_cache", "Empty prefix caches", "ResetPrefixCache", statuses=ASKED
    ),
)
OTHERS = (
    Operation(
        "get",
        "/v1/models",
        "All models",
        "ModelList",
        error="ModelsError",
        statuses=(400, 401, 500),
    ),
    Operation(
        "get",
        "/v1/models/{id}",
        "One model",
        "Model",
        error="ModelsError",
        statuses=(401, 404, 500),
    ),
    Operation("get", "/metrics", "Prometheus metrics", "", statuses=CLOSED),
    Operation("get", "/health", "Whether the server runs", "Health", statuses=()),
    Operation("get", "/ready", "Whether the models do", "Ready", statuses=()),
    Operation("get", "/openapi.json", "This document", "Document", statuses=()),
)
LIMITED = (*GENERATION, *EMBEDDING)
OPERATIONS = (*GENERATION, *EMBEDDING, *COUNTING, *KEPT, *FILES, *BATCHES, *OPERATORS, *OTHERS)
OPEN = ("/health", "/ready", "/openapi.json")


def document(generating: Sequence[str], embedding: Sequence[str] = (), *, keys: bool) -> Schema:
    """OpenAPI 3.1 for the models of these names; ``keys`` tells whether the server asks for one."""
    paths: dict[str, Schema] = {}
    for operation in OPERATIONS:
        paths.setdefault(operation.path, {})[operation.method] = _operation(operation, keys)
    return {
        "openapi": "3.1.0",
        "info": {"title": "stepserve", "version": "1"},
        "paths": paths,
        "components": {
            "schemas": {**bodies(generating, embedding), **ANSWERS, "Document": {"type": "object"}},
            "securitySchemes": {
                "bearer": {"type": "http", "scheme": "bearer"},
                "header": {"type": "apiKey", "in": "header", "name": "x-api-key"},
            },
        },
    }


def _operation(operation: Operation, keys: bool) -> Schema:
    described: Schema = {"summary": operation.summary, "responses": _answers(operation, keys)}
    if operation.body:
        schemas = [ref(name) for name in operation.body]
        schema = schemas[0] if len(schemas) == 1 else {"anyOf": schemas}
        described["requestBody"] = {
            "required": True,
            "content": {operation.media: {"schema": schema}},
        }
    if parameters := _parameters(operation):
        described["parameters"] = parameters
    if operation in OPERATORS or (keys and operation.path not in OPEN):
        described["security"] = [{"bearer": []}, {"header": []}]
    return described


def _parameters(operation: Operation) -> list[Schema]:
    query = [{"name": name, "in": "query", "schema": schema} for name, schema in operation.query]
    if "{id}" not in operation.path:
        return query
    return [{"name": "id", "in": "path", "required": True, "schema": STRING}, *query]


def _answers(operation: Operation, keys: bool) -> Schema:
    statuses = (*operation.statuses, *((429,) if keys and operation in LIMITED else ()))
    answers = {str(code): _error(code, operation.error) for code in statuses}
    if operation.path == "/metrics":
        answers["200"] = {"description": "Metrics", "content": {PLAIN: {"schema": STRING}}}
    elif operation.path == "/v1/files/{id}/content":
        held: Schema = {"schema": {"type": "string", "format": "binary"}}
        answers["200"] = {"description": operation.summary, "content": {BYTES: held}}
    elif operation.answer:
        content = {JSON: {"schema": ref(operation.answer)}}
        if operation.streams:
            content[EVENTS] = {"schema": ref("Event")}
        answers["200"] = {"description": operation.summary, "content": content}
    if operation.path == "/ready":
        answers["503"] = {**answers["200"], "description": "A model is not ready"}
    return answers


def _error(status: int, schema: str) -> Schema:
    return {"description": REASONS[status], "content": {JSON: {"schema": ref(schema)}}}
