"""Bodies as coding agents send them, in each dialect: all of it is taken."""

from __future__ import annotations

from typing import Any

import pytest

from models.mock import MockEngine
from tests.deployments.serving import CHAT, make_app, post

SCHEMA = {
    "$schema": "http://json-schema.org/draft-07/schema#",
    "type": "object",
    "properties": {"command": {"type": "string"}},
    "required": ["command"],
    "additionalProperties": False,
}
CACHED = {"cache_control": {"type": "ephemeral"}}
MESSAGE = {
    "model": "mock",
    "max_tokens": 32000,
    "stream": True,
    "temperature": 1,
    "system": [{"type": "text", "text": "You are an agent.", **CACHED}],
    "messages": [
        {"role": "user", "content": [{"type": "text", "text": "List the files.", **CACHED}]},
        {
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": "A command.", "signature": "s"},
                {"type": "tool_use", "id": "toolu_1", "name": "run", "input": {"command": "ls"}},
            ],
        },
        {
            "role": "user",
            "content": [
                {
                    "type": "tool_result",
                    "tool_use_id": "toolu_1",
                    "content": [{"type": "text", "text": "a.py"}],
                    "is_error": False,
                    **CACHED,
                }
            ],
        },
    ],
    "tools": [{"name": "run", "description": "Runs it.", "input_schema": SCHEMA, **CACHED}],
    "metadata": {"user_id": "one"},
    "thinking": {"type": "enabled", "budget_tokens": 16000},
    "context_management": {"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]},
    "output_config": {"effort": "medium"},
}
RESPONSE = {
    "model": "mock",
    "instructions": "You are an agent.",
    "input": [
        {"type": "message", "role": "developer", "content": [{"type": "input_text", "text": "x"}]},
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "List."}]},
        {"type": "reasoning", "summary": [], "content": None, "encrypted_content": None},
        {"type": "function_call", "name": "run", "arguments": "{}", "call_id": "call_1"},
        {"type": "function_call_output", "call_id": "call_1", "output": "a.py"},
    ],
    "tools": [{"type": "function", "name": "run", "strict": False, "parameters": SCHEMA}],
    "tool_choice": "auto",
    "parallel_tool_calls": False,
    "reasoning": {"effort": "medium", "summary": "detailed"},
    "store": False,
    "stream": True,
    "include": ["reasoning.encrypted_content"],
    "prompt_cache_key": "one",
    "client_metadata": {"session": "one"},
    "text": {"verbosity": "low"},
}
COMPLETION = {
    "model": "mock",
    "messages": [
        {"role": "system", "content": "You are an agent."},
        {"role": "user", "content": [{"type": "text", "text": "List.", **CACHED}]},
        {
            "role": "assistant",
            "content": "",
            "reasoning_content": "A command.",
            "tool_calls": [
                {
                    "id": "call_1",
                    "index": 0,
                    "type": "function",
                    "function": {"name": "run", "arguments": ""},
                }
            ],
        },
        {"role": "tool", "tool_call_id": "call_1", "name": "run", "content": "a.py"},
    ],
    "tools": [{"type": "function", "function": {"name": "run", "parameters": SCHEMA}}],
    "tool_choice": "auto",
    "max_tokens": 32000,
    "temperature": 0,
    "top_p": 1,
    "reasoning_effort": "medium",
    "stream": True,
    "stream_options": {"include_usage": True},
}


@pytest.mark.parametrize(
    ("path", "body"),
    [("/v1/messages?beta=true", MESSAGE), ("/v1/responses", RESPONSE), (CHAT, COMPLETION)],
)
async def test_what_agents_send_is_answered(path: str, body: dict[str, Any]) -> None:
    answer = await post(make_app(MockEngine("mock")), path, body)
    assert answer.status_code == 200, answer.text
    assert "fox" in answer.text
