"""Whatever is sent, the server does not break."""

from __future__ import annotations

from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from deployments.openai.parameters import CHAT_NEUTRAL, HARMLESS
from models.mock import MockEngine
from tests.deployments.schemas import check
from tests.deployments.serving import CHAT, COMPLETIONS, HELLO, client, make_app, post

OWN = ["messages", "prompt", "model", "stream", "stream_options", "n", "best_of", "max_tokens"]
OWN += ["max_completion_tokens", "stop", "temperature", "top_p", "top_k", "min_p", "seed"]
OWN += ["presence_penalty", "frequency_penalty", "repetition_penalty", "logit_bias"]
OWN += ["min_tokens", "stop_token_ids", "ignore_eos", "tools", "tool_choice", "documents"]
OWN += ["parallel_tool_calls", "reasoning_effort", "chat_template_kwargs"]
OWN += ["thinking_token_budget"]
OWN += ["logprobs", "top_logprobs", "echo"]
OWN += ["prompt_logprobs", "allowed_token_ids", "bad_words", "return_token_ids", "timeout"]
OWN += ["include_stop_str_in_output", "skip_special_tokens", "truncate_prompt_tokens", "priority"]
NAMES = sorted({*OWN, *CHAT_NEUTRAL, *HARMLESS})
FIELDS = ["role", "content", "name", "type", "text", "tool_calls", "function", "arguments", "5"]
ROLES = ["system", "user", "assistant", "tool", "function", "text", "image_url"]

leaves = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(max_size=5),
    st.sampled_from([*ROLES, "mock", 0, 1, 2, 2**63, 2**64, 10**400, -1]),
)
values = st.recursive(
    leaves,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(st.sampled_from(FIELDS) | st.text(max_size=3), inner, max_size=4),
    ),
    max_leaves=12,
)
bodies = st.dictionaries(st.sampled_from(NAMES) | st.text(max_size=3), values, max_size=4)
FUZZ = settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))


async def survives(path: str, body: Any) -> None:
    app = make_app(MockEngine("mock", pieces=["a"], max_context=64))
    answer = await post(app, path, body)
    timed = (504,) if "timeout" in body else ()
    assert answer.status_code in (200, 400, 404, *timed), answer.text
    if answer.status_code != 200:
        check("ErrorResponse", answer.json())


@FUZZ
@given(bodies)
async def test_chat(body: dict[str, Any]) -> None:
    await survives(CHAT, {"model": "mock", "messages": HELLO, **body})


@FUZZ
@given(bodies)
async def test_completions(body: dict[str, Any]) -> None:
    await survives(COMPLETIONS, {"model": "mock", "prompt": "Hi", **body})


@FUZZ
@given(st.sampled_from(NAMES), values)
async def test_one_parameter_at_a_time(name: str, value: Any) -> None:
    await survives(CHAT, {"model": "mock", "messages": HELLO, name: value})
    await survives(COMPLETIONS, {"model": "mock", "prompt": "Hi", name: value})


@FUZZ
@given(st.binary(max_size=40))
async def test_any_bytes(body: bytes) -> None:
    async with client(make_app()) as http:
        answer = await http.post(CHAT, content=body)
    assert answer.status_code == 400
    check("ErrorResponse", answer.json())
