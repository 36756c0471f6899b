from __future__ import annotations

from typing import Any

import httpx
import pytest
from starlette.applications import Starlette

from deployments.ingress import create_app
from deployments.responses.store import MemoryStore
from models.errors import Failed
from models.mock import MockEngine
from models.request import ChatPrompt
from tests.deployments.responses.asking import RESPONSES, answer, ask, told
from tests.deployments.schemas import check
from tests.deployments.serving import Probes, client, make_app, make_settings, post

PIECES = ["Hel", "lo", " wor", "ld"]


def mock(**settings: Any) -> Starlette:
    return make_app(MockEngine("mock", pieces=PIECES, cached_tokens=1), **settings)


async def get(app: Starlette, path: str) -> httpx.Response:
    async with client(app) as http:
        return await http.get(f"{RESPONSES}/{path}")


def text_of(response: dict[str, Any]) -> str:
    return "".join(part["text"] for item in response["output"] for part in item["content"])


def refusal(got: httpx.Response, status: int = 400) -> dict[str, Any]:
    assert got.status_code == status, got.text
    check("ErrorResponse", got.json())
    error: dict[str, Any] = got.json()["error"]
    return error


async def test_a_response() -> None:
    response = await answer(mock(), metadata={"a": "b"}, max_output_tokens=50, temperature=0.5)
    assert response["id"].startswith("resp_")
    assert (response["status"], text_of(response)) == ("completed", "Hello world")
    assert response["usage"] == {
        "input_tokens": 2,
        "input_tokens_details": {"cached_tokens": 1, "cache_write_tokens": 0},
        "output_tokens": 4,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": 6,
    }
    assert (response["metadata"], response["temperature"]) == ({"a": "b"}, 0.5)
    assert (response["max_output_tokens"], response["store"]) == (50, True)


async def test_a_stream_says_what_the_whole_answer_says() -> None:
    app = mock()
    events = told((await ask(app, stream=True)).text)
    assert [event["type"].removeprefix("response.") for event in events] == [
        "created",
        "in_progress",
        "output_item.added",
        "content_part.added",
        *["output_text.delta"] * 4,
        "output_text.done",
        "content_part.done",
        "output_item.done",
        "completed",
    ]
    assert [event["delta"] for event in events[4:8]] == PIECES
    assert events[0]["response"]["status"] == "in_progress"
    assert events[0]["response"]["output"] == []
    last = events[-1]["response"]
    assert events[-2]["item"] == last["output"][0]
    assert (await get(app, last["id"])).json() == last
    whole = await answer(app)
    assert last.keys() == whole.keys()
    assert {**last["usage"]} == whole["usage"]


async def test_every_event_has_openais_form() -> None:
    for event in told((await ask(mock(), stream=True)).text):
        name = event["type"].removeprefix("response.").replace("output_text", "text")
        check(f"Response{name.title().replace('.', '').replace('_', '')}Event", event)


@pytest.mark.parametrize("stream", [False, True])
async def test_an_answer_that_was_cut_is_incomplete(stream: bool) -> None:
    got = await ask(mock(), max_output_tokens=2, stream=stream)
    response = told(got.text)[-1]["response"] if stream else got.json()
    check("Response", response)
    assert (response["status"], text_of(response)) == ("incomplete", "Hello")
    assert response["incomplete_details"] == {"reason": "max_output_tokens"}
    assert response["output"][0]["status"] == "incomplete"


async def test_an_answer_without_text_has_its_message() -> None:
    response = await answer(make_app(MockEngine("mock", pieces=[])))
    assert text_of(response) == ""
    assert len(response["output"]) == 1


@pytest.mark.parametrize("key", ["prompt_cache_key", "session_id"])
async def test_what_reaches_the_engine(key: str) -> None:
    engine = MockEngine("mock")
    options = {"temperature": 0.5, "top_p": 0.9, "max_output_tokens": 9, key: "k"}
    await ask(make_app(engine), instructions="Be brief.", store=False, **options)
    [request] = engine.requests
    system = {"role": "system", "content": "Be brief."}
    user = {"role": "user", "content": "Hello there"}
    assert request.prompt == ChatPrompt((system, user))
    sampling = request.sampling
    assert (sampling.temperature, sampling.top_p, sampling.max_tokens) == (0.5, 0.9, 9)
    assert request.cache_key == "k"


@pytest.mark.parametrize("stream", [False, True])
async def test_a_conversation_goes_on_where_it_was(stream: bool) -> None:
    engine = MockEngine("mock", pieces=["Hello"])
    app = make_app(engine)
    id = None
    for i, text in enumerate("abc"):
        got = await ask(
            app, input=text, previous_response_id=id, instructions=f"now {text}", stream=stream
        )
        response = told(got.text)[-1]["response"] if stream else got.json()
        assert response["previous_response_id"] == id
        id = response["id"]
        if i == 1:
            async with client(app) as http:  # what is deleted takes nothing with it
                await http.delete(f"{RESPONSES}/{id}")
                break
    prompt = engine.requests[-1].prompt
    assert isinstance(prompt, ChatPrompt)
    assert [message["content"] for message in prompt.messages] == ["now b", "a", "Hello", "b"]


async def test_a_kept_response_can_be_asked_for_and_deleted() -> None:
    app = mock()
    response = await answer(app)
    id = response["id"]
    assert (await get(app, id)).json() == response
    async with client(app) as http:
        deleted = await http.delete(f"{RESPONSES}/{id}")
        assert deleted.json() == {"id": id, "object": "response", "deleted": True}
        refusal(await http.delete(f"{RESPONSES}/{id}"), 404)
    assert id in refusal(await get(app, id), 404)["message"]
    assert refusal(await ask(app, previous_response_id=id))["param"] == "previous_response_id"


async def test_a_response_is_not_kept_if_its_caller_says_so() -> None:
    app = mock()
    response = await answer(app, store=False)
    assert response["store"] is False
    refusal(await get(app, response["id"]), 404)


async def test_a_server_may_keep_nothing() -> None:
    app = mock(responses_kept=0)
    assert (await answer(app))["store"] is False
    assert refusal(await ask(app, store=True))["param"] == "store"


async def test_only_the_newest_are_kept() -> None:
    app = mock(responses_kept=1)
    first, second = await answer(app), await answer(app)
    refusal(await get(app, first["id"]), 404)
    assert (await get(app, second["id"])).status_code == 200


class BrokenStore(MemoryStore):
    async def put(self, id: str, record: bytes) -> bool:
        raise Failed("The store is lost.")

    async def get(self, id: str) -> bytes | None:
        raise Failed("The store is lost.")

    async def delete(self, id: str) -> bool:
        raise Failed("The store is lost.")


async def test_a_store_that_fails_costs_no_answer() -> None:
    engine = MockEngine("mock", pieces=PIECES)
    store = BrokenStore(1, 1)
    app = create_app({"mock": engine}, make_settings(engine), Probes(), responses=store)
    response = await answer(app)
    assert (text_of(response), response["store"]) == ("Hello world", False)
    refusal(await get(app, response["id"]), 503)
    refusal(await ask(app, previous_response_id="resp_1"), 503)
    async with client(app) as http:
        refusal(await http.delete(f"{RESPONSES}/x"), 503)


async def test_only_what_runs_behind_the_scenes_can_be_cancelled() -> None:
    app = mock()
    id = (await answer(app))["id"]
    assert "synchronous" in refusal(await post(app, f"{RESPONSES}/{id}/cancel", {}))["message"]
    refusal(await post(app, f"{RESPONSES}/other/cancel", {}), 404)


async def test_the_items_of_an_input_in_pages() -> None:
    app = mock()
    value = [{"role": "user", "content": text} for text in "abc"]
    id = (await answer(app, input=value))["id"]

    async def page(query: str) -> tuple[list[str], dict[str, Any]]:
        listed = (await get(app, f"{id}/input_items?{query}")).json()
        return [item["content"][0]["text"] for item in listed["data"]], listed

    assert (await page(""))[0] == ["c", "b", "a"]
    texts, listed = await page("order=asc&limit=2")
    assert (texts, listed["has_more"]) == (["a", "b"], True)
    texts, listed = await page(f"order=asc&after={listed['last_id']}")
    assert (texts, listed["has_more"]) == (["c"], False)
    for wrong in ("after=x", "limit=0", "limit=x", "limit=101"):
        refusal(await get(app, f"{id}/input_items?{wrong}"))


@pytest.mark.parametrize(
    ("changes", "param"),
    [
        ({"model": None}, "model"),
        ({"input": None}, "input"),
        ({"input": []}, "input"),
        ({"input": [{"role": "user", "content": [{"type": "input_image"}]}]}, None),
        ({"max_output_tokens": 0}, "max_output_tokens"),
        ({"temperature": 9}, "temperature"),
        ({"background": True}, "background"),
        ({"tools": {}}, "tools"),
        ({"tools": [{"type": "web_search"}]}, "tools[0].type"),
        ({"tool_choice": "required"}, "tool_choice"),
        ({"reasoning": {"effort": "most"}}, "reasoning.effort"),
        ({"reasoning": {"summary": "none"}}, "reasoning.summary"),
        ({"text": {"format": {"type": "json_object"}}}, "text.format"),
        ({"text": {"other": 1}}, "text.other"),
        ({"top_logprobs": 21}, "top_logprobs"),
        ({"include": ["message.output_text.lies"]}, "include[0]"),
        ({"truncation": "most"}, "truncation"),
        ({"conversation": "c"}, "conversation"),
        ({"prompt": {"id": "x"}}, "prompt"),
        ({"metadata": {"a": 1}}, "metadata.a"),
        ({"metadata": {str(i): "x" for i in range(17)}}, "metadata"),
        ({"stream_options": {"include_obfuscation": False}}, "stream_options"),
        (
            {"stream": True, "stream_options": {"include_usage": False}},
            "stream_options.include_usage",
        ),
        ({"previous_response_id": "resp_x"}, "previous_response_id"),
        ({"n": 2}, "n"),
    ],
)
async def test_what_is_wrong_is_named(changes: dict[str, Any], param: str | None) -> None:
    error = refusal(await ask(mock(), **changes))
    assert error["param"] == (param or "input[0].content[0].type")


async def test_what_changes_nothing_is_accepted() -> None:
    harmless = {"user": "u", "service_tier": "auto", "truncation": "disabled", "tools": []}
    included = ["reasoning.encrypted_content", "web_search_call.action.sources"]
    more: dict[str, Any] = {"reasoning": {"summary": "detailed"}, "client_metadata": {"a": "b"}}
    more |= {"include": included, "text": {"format": {"type": "text"}}, "max_tool_calls": 3}
    assert (await ask(mock(), **harmless, **more)).status_code == 200
    streamed = {"stream": True, "stream_options": {"include_usage": True}}
    assert (await ask(mock(), **streamed)).status_code == 200


@pytest.mark.parametrize(
    ("asked", "alternatives"),
    [
        ({"include": ["message.output_text.logprobs"], "top_logprobs": 2}, 2),
        ({"include": ["message.output_text.logprobs"]}, 0),
        ({"top_logprobs": 1}, 1),
    ],
)
async def test_logprobs(asked: dict[str, Any], alternatives: int) -> None:
    response = await answer(mock(), **asked)
    (part,) = response["output"][0]["content"]
    assert [one["token"] for one in part["logprobs"]] == PIECES
    assert part["logprobs"][0]["bytes"] == [*b"Hel"]
    assert all(len(one["top_logprobs"]) <= alternatives for one in part["logprobs"])
    assert len(part["logprobs"][0]["top_logprobs"]) == alternatives
    assert response["top_logprobs"] == asked.get("top_logprobs", 0)
    events = told((await ask(mock(), stream=True, **asked)).text)
    deltas = [event for event in events if event["type"] == "response.output_text.delta"]
    for delta in deltas:
        check("ResponseTextDeltaEvent", delta)
    assert [one for delta in deltas for one in delta["logprobs"]] == part["logprobs"]
    assert events[-1]["response"]["output"][0]["content"] == [part]


async def test_without_them_there_are_none() -> None:
    response = await answer(mock())
    assert response["output"][0]["content"][0]["logprobs"] == []


def words(role: str, *numbers: int) -> list[dict[str, Any]]:
    return [{"role": role, "content": f"{role} {number} says"} for number in numbers]


@pytest.mark.parametrize("stream", [False, True])
async def test_a_conversation_too_long_loses_its_beginning_if_it_may(stream: bool) -> None:
    engine = MockEngine("mock", pieces=PIECES, max_context=24)
    turns = [one for i in range(9) for one in words("user", i) + words("assistant", i)]
    asked: dict[str, Any] = {"input": [*turns, *words("user", 9)], "stream": stream}
    asked |= {"instructions": "Be kind.", "max_output_tokens": 8}
    app = make_app(engine)
    assert refusal(await ask(app, **asked))["code"] == "context_length_exceeded"
    got = await ask(app, **asked, truncation="auto")
    assert got.status_code == 200
    response = told(got.text)[-1]["response"] if stream else got.json()
    assert response["truncation"] == "auto"
    prompt = engine.requests[-1].prompt
    assert isinstance(prompt, ChatPrompt)
    contents = [message["content"] for message in prompt.messages]
    rest = [turn["content"] for turn in asked["input"]]
    assert contents[0] == "Be kind."
    assert contents[1].startswith("user")
    assert 3 <= len(contents[1:]) <= 7
    assert contents[1:] == rest[1 - len(contents) :]
    items = (await get(app, f"{response['id']}/input_items?limit=100")).json()["data"]
    assert len(items) == 19  # what was asked is kept whole


async def test_a_last_message_too_long_is_too_long_all_the_same() -> None:
    app = make_app(MockEngine("mock", max_context=8))
    error = refusal(await ask(app, input="a " * 20, truncation="auto"))
    assert error["code"] == "context_length_exceeded"


async def test_errors_before_the_answer() -> None:
    refusal(await ask(mock(), model="other"), 404)
    refusal(await ask(make_app(MockEngine("mock", failure="busy"))), 503)
    error = refusal(await ask(make_app(MockEngine("mock", max_context=2)), stream=True))
    assert (error["code"], error["param"]) == ("context_length_exceeded", "input")
    refusal(await ask(mock(api_keys=["one"])), 401)


async def test_a_failure_in_the_stream_is_its_last_event() -> None:
    app = make_app(MockEngine("mock", pieces=PIECES, failure="failed", fail_after=2))
    events = told((await ask(app, stream=True)).text)
    assert events[-1]["type"] == "response.failed"
    check("ResponseFailedEvent", events[-1])
    response = events[-1]["response"]
    assert response["error"] == {"code": "server_error", "message": "The mock engine failed."}
    assert response["status"] == "failed"
    refusal(await get(app, response["id"]), 404)
