from __future__ import annotations

from models.mock import MockEngine
from tests.deployments.schemas import check
from tests.deployments.serving import chat, events, make_app

PIECES = ["Hel", "lo", " wor", "ld"]


async def test_an_answer_is_whole() -> None:
    answer = await chat(make_app(MockEngine("mock", pieces=PIECES, cached_tokens=1)))
    assert answer.status_code == 200
    body = answer.json()
    check("CreateChatCompletionResponse", body)
    assert body["id"].startswith("chatcmpl-")
    assert body["choices"] == [
        {
            "index": 0,
            "message": {"role": "assistant", "content": "Hello world", "refusal": None},
            "logprobs": None,
            "finish_reason": "stop",
            "stop_reason": None,
        }
    ]
    assert body["usage"] == {
        "prompt_tokens": 2,
        "completion_tokens": 4,
        "total_tokens": 6,
        "prompt_tokens_details": {"cached_tokens": 1},
        "completion_tokens_details": {"reasoning_tokens": 0},
    }


async def test_a_stream_is_exactly_openais() -> None:
    answer = await chat(make_app(MockEngine("mock", pieces=PIECES)), stream=True)
    assert answer.headers["content-type"] == "text/event-stream; charset=utf-8"
    *chunks, done = events(answer.text)
    assert done == "[DONE]"
    for chunk in chunks:
        check("CreateChatCompletionStreamResponse", chunk)
        assert "usage" not in chunk
    choices = [chunk["choices"][0] for chunk in chunks]
    opening = {"role": "assistant", "content": "", "refusal": None}
    texts = [{"content": piece} for piece in PIECES]
    assert [choice["delta"] for choice in choices] == [opening, *texts, {}]
    assert [choice["finish_reason"] for choice in choices] == [None] * 5 + ["stop"]
    assert choices[-1]["stop_reason"] is None


async def test_every_chunk_has_the_same_heading() -> None:
    answer = await chat(make_app(), stream=True, stream_options={"include_usage": True})
    *chunks, _ = events(answer.text)
    heading = ("id", "object", "created", "model", "system_fingerprint")
    assert len({tuple(chunk[key] for key in heading) for chunk in chunks}) == 1


async def test_usage_comes_last_and_only_when_asked_for() -> None:
    app = make_app(MockEngine("mock", pieces=PIECES, cached_tokens=2))
    whole = (await chat(app, n=2)).json()
    answer = await chat(app, n=2, stream=True, stream_options={"include_usage": True})
    *chunks, last, done = events(answer.text)
    assert done == "[DONE]"
    assert all(chunk["usage"] is None for chunk in chunks)
    assert last["choices"] == []
    assert last["usage"] == whole["usage"]
    for chunk in [*chunks, last]:
        check("CreateChatCompletionStreamResponse", chunk)


async def test_choices_are_apart_and_end_once_each() -> None:
    app = make_app(MockEngine("mock", pieces=PIECES))
    *chunks, _ = events((await chat(app, n=3, stream=True)).text)
    choices = [chunk["choices"][0] for chunk in chunks]
    for index in range(3):
        own = [choice for choice in choices if choice["index"] == index]
        assert own[0]["delta"]["role"] == "assistant"
        assert "".join(choice["delta"].get("content", "") for choice in own) == "Hello world"
        assert [bool(choice["finish_reason"]) for choice in own] == [False] * 5 + [True]
    assert [one["index"] for one in (await chat(app, n=3)).json()["choices"]] == [0, 1, 2]


async def test_text_survives_every_client() -> None:
    text = 'é ありがとう 👩‍👩‍👧 \u2028 \x85 \n " \\ \x00'
    app = make_app(MockEngine("mock", pieces=list(text)))
    answer = await chat(app, stream=True)
    *chunks, _ = events(answer.text)
    assert "".join(chunk["choices"][0]["delta"].get("content", "") for chunk in chunks) == text
    assert "ありがとう"[0] in answer.text
    assert answer.text.splitlines() == answer.text.split("\n")[:-1]
    whole = await chat(app)
    assert whole.json()["choices"][0]["message"]["content"] == text
