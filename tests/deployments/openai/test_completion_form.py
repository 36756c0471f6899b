from __future__ import annotations

from models.mock import MockEngine
from tests.deployments.schemas import check, check_text_chunk
from tests.deployments.serving import complete, events, make_app

PIECES = ["a", "b", "c"]


async def test_an_answer_is_whole() -> None:
    answer = await complete(make_app(MockEngine("mock", pieces=PIECES)))
    body = answer.json()
    check("CreateCompletionResponse", body)
    assert body["id"].startswith("cmpl-")
    assert body["choices"] == [
        {
            "index": 0,
            "text": "abc",
            "logprobs": None,
            "finish_reason": "stop",
            "stop_reason": None,
        }
    ]


async def test_a_stream_has_no_opening() -> None:
    app = make_app(MockEngine("mock", pieces=PIECES))
    answer = await complete(app, stream=True, stream_options={"include_usage": True})
    *chunks, last, done = events(answer.text)
    assert done == "[DONE]"
    for chunk in [*chunks, last]:
        check_text_chunk(chunk)
    assert [chunk["choices"][0]["text"] for chunk in chunks] == [*PIECES, ""]
    assert [chunk["choices"][0]["finish_reason"] for chunk in chunks] == [None] * 3 + ["stop"]
    assert last["choices"] == []
    assert last["usage"]["completion_tokens"] == 3


async def test_choices_of_many_prompts_are_in_order() -> None:
    app = make_app(MockEngine("mock", pieces=PIECES, cached_tokens=1))
    body = (await complete(app, prompt=["a", "b c"], n=2)).json()
    assert [choice["index"] for choice in body["choices"]] == [0, 1, 2, 3]
    assert body["usage"]["prompt_tokens"] == 3
    assert body["usage"]["completion_tokens"] == 12
    assert body["usage"]["prompt_tokens_details"] == {"cached_tokens": 2}


async def test_many_prompts_stream_together() -> None:
    app = make_app(MockEngine("mock", pieces=PIECES))
    prompts = [f"prompt {i}" for i in range(80)]
    *chunks, done = events((await complete(app, prompt=prompts, n=2, stream=True)).text)
    assert done == "[DONE]"
    texts = dict.fromkeys(range(160), "")
    for chunk in chunks:
        texts[chunk["choices"][0]["index"]] += chunk["choices"][0]["text"]
    assert set(texts.values()) == {"abc"}
