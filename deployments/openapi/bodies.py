"""Schemas of request bodies: what the request models check, and what they leave to others."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from pydantic import BaseModel

from deployments.admin_routes import AbortBody
from deployments.anthropic import request as anthropic
from deployments.batches.bodies import HOUR_S, LONGEST_S, PURPOSE, BatchBody
from deployments.openai import embeddings, parameters
from deployments.openai.chat import ChatBody
from deployments.openai.completions import CompletionsBody
from deployments.openai.structured import PARSERS
from deployments.openai.tokenization import DetokenizeBody, TokenizeBody
from deployments.openapi import parts
from deployments.openapi.schema import FLAG, NULL, STRING, Schema, or_null
from deployments.responses import request as responses
from models.request import LIMITS, MAX_CHOICES, Limits

Neutral = Mapping[str, Collection[Any]]


def _bounds(limits: Limits) -> Schema:
    return {"minimum": limits.low, "maximum": limits.high}


# Limits of the request's types, which the request models leave to them.
BOUNDS: Mapping[str, Schema] = {
    **{name: _bounds(limits) for name, limits in LIMITS.items()},
    "best_of": {"minimum": 1, "maximum": MAX_CHOICES},
    "dimensions": {"minimum": 1},
    "min_tokens": {"minimum": 0},
    "n": {"minimum": 1, "maximum": MAX_CHOICES},
    "repetition_penalty": {"exclusiveMinimum": 0},
    "thinking_token_budget": {"minimum": 0},
}
# Options of a stream go with streams only.
STREAMED = [
    {"required": ["stream"], "properties": {"stream": {"const": True}}},
    {"properties": {"stream_options": {"type": "null"}}},
]
OF_BOTH: Schema = {
    **{name: {} for name in PARSERS},  # as other servers take them; told by their errors
    "repeat_penalty": or_null({"type": "number", "exclusiveMinimum": 0}),
    "no_stop_trim": or_null(FLAG),
    "response_format": or_null(parts.FORMAT),
    "stop": or_null(parts.STOP),
    "logit_bias": or_null(parts.BIAS),
}
FILE_FORM: Schema = {
    "type": "object",
    "properties": {
        "file": {"type": "string", "format": "binary"},
        "purpose": {"type": "string", "const": PURPOSE},
        "expires_after[anchor]": {"type": "string", "const": "created_at"},
        "expires_after[seconds]": {"type": "integer", "minimum": HOUR_S, "maximum": LONGEST_S},
    },
    "required": ["file", "purpose"],
}


def bodies(models: Sequence[str], embedding: Sequence[str]) -> dict[str, Schema]:
    """The schemas by name; ``models`` that generate and those embedding: what clients may send."""
    chat = _body(ChatBody, models, parameters.CHAT_NEUTRAL, parameters.HARMLESS)
    chat["properties"] |= {"messages": parts.CHAT, **parts.CHAT_TOOLS, **OF_BOTH}
    completions = _body(
        CompletionsBody, models, parameters.COMPLETIONS_NEUTRAL, parameters.HARMLESS
    )
    completions["properties"] |= {"prompt": or_null(parts.PROMPT), **OF_BOTH}
    return {
        "ChatRequest": chat,
        "CompletionRequest": completions,
        "TokenizePromptRequest": _tokenize(models),
        "TokenizeChatRequest": _tokenize_chat(chat, models),
        "DetokenizeRequest": _detokenize(models),
        **_anthropic(models),
        "ResponseRequest": _response(models),
        "EmbeddingsRequest": _embeddings(embedding),
        "AbortRequest": _inlined(AbortBody.model_json_schema()),
        "BatchRequest": _inlined(BatchBody.model_json_schema()),
        "FileForm": FILE_FORM,
    }


def _anthropic(models: Sequence[str]) -> dict[str, Schema]:
    message = _body(anthropic.MessagesBody, models, anthropic.NEUTRAL, anthropic.HARMLESS)
    count = _body(anthropic.PromptBody, models, anthropic.NEUTRAL, anthropic.HARMLESS)
    for schema in (message, count):
        schema["properties"] |= {"messages": parts.TURNS, "system": or_null(parts.TEXT)}
        schema["properties"] |= parts.ANTHROPIC_OPTIONS
    return {"MessageRequest": message, "MessageTokensRequest": count}


def _response(models: Sequence[str]) -> Schema:
    schema = _body(responses.ResponseBody, models, responses.NEUTRAL, responses.HARMLESS)
    schema["properties"] |= {"input": parts.INPUT, **parts.RESPONSE_TOOLS}
    text = schema["properties"]["text"]["anyOf"][0]
    text["properties"] |= parts.TEXT_OPTIONS["properties"]
    schema["required"] = ["model", "input"]
    pairs = {
        "type": "object",
        "additionalProperties": STRING,
        "maxProperties": responses.METADATA_PAIRS,
    }
    schema["properties"]["metadata"] = or_null(pairs)
    return schema


def _embeddings(models: Sequence[str]) -> Schema:
    schema = _body(embeddings.EmbeddingsBody, models, embeddings.NEUTRAL, parameters.HARMLESS)
    schema["properties"]["input"] = parts.INPUTS
    schema["required"] = ["model", "input"]
    return schema


def _tokenize(models: Sequence[str]) -> Schema:
    schema = _body(TokenizeBody, models, {"messages": ()}, parameters.HARMLESS)
    schema["properties"] |= {"return_token_strs": or_null(FLAG)}
    return _model_may_be_left_out(schema, models)


def _tokenize_chat(chat: Schema, models: Sequence[str]) -> Schema:
    flag = or_null(FLAG)
    properties = {**chat["properties"], "return_token_strs": flag, "prompt": NULL}
    return _model_may_be_left_out({**chat, "properties": properties}, models)


def _detokenize(models: Sequence[str]) -> Schema:
    schema = _body(DetokenizeBody, models, {}, parameters.HARMLESS)
    schema["properties"]["tokens"] = {**parts.TOKENS, "minItems": 0}
    return _model_may_be_left_out(schema, models)


def _model_may_be_left_out(schema: Schema, models: Sequence[str]) -> Schema:
    """Where there is but one."""
    others = [name for name in schema.get("required", ()) if name != "model"]
    if len(models) > 1:
        return {**schema, "required": ["model", *others]}
    properties = {**schema["properties"], "model": or_null({"enum": list(models)})}
    return {**schema, "required": others, "properties": properties}


def _body(
    model: type[BaseModel], models: Sequence[str], neutral: Neutral, harmless: Collection[str]
) -> Schema:
    """Of parameters that are not supported, just the values that ask for what is done anyway."""
    schema = _inlined(model.model_json_schema())
    known = schema["properties"]
    for name in known.keys() & BOUNDS.keys():
        known[name] = _bounded(known[name], BOUNDS[name])
    known["model"] = {"type": "string", **({"enum": list(models)} if models else {})}
    values = {name: {"enum": [None, *values]} for name, values in neutral.items()}
    schema["properties"] = {**{name: {} for name in sorted(harmless)}, **values, **known}
    schema["additionalProperties"] = False
    return schema | ({"anyOf": STREAMED} if "stream_options" in known else {})


def _bounded(schema: Schema, bounds: Schema) -> Schema:
    parts = [part if part.get("type") == "null" else {**part, **bounds} for part in schema["anyOf"]]
    return {**schema, "anyOf": parts}


def _inlined(schema: Schema) -> Schema:
    """Without definitions of its own, to be put into a larger document."""
    definitions = schema.pop("$defs", {})

    def replaced(node: Any) -> Any:
        if isinstance(node, list):
            return [replaced(one) for one in node]
        if not isinstance(node, dict):
            return node
        if "$ref" in node:
            return replaced(definitions[node["$ref"].rpartition("/")[2]])
        plain = node.get("title"), node.get("default", ...)
        dropped = {"title"} if isinstance(plain[0], str) else set()
        dropped |= {"default"} if plain[1] is None else set()
        return {key: replaced(value) for key, value in node.items() if key not in dropped}

    inlined: Schema = replaced(schema)
    return inlined
