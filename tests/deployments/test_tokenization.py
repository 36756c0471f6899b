from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from starlette.applications import Starlette

from configs.settings import ModelSettings
from models.build import build_scheduled
from models.mock import MockEngine
from models.scheduled import Scheduled
from models.text.byte_tokenizer import ASSISTANT, BOS, END, USER
from tests.deployments.schemas import check
from tests.deployments.serving import Counting, client, make_app, post

HI = [{"role": "user", "content": "Hi"}]
CHAT_IDS = [256, 259, *b"Hi", 257, 260]


@pytest.fixture(scope="module")
def engine() -> Iterator[Scheduled]:
    settings = ModelSettings(name="counting", factory="tests.models.counting:Counting")
    with build_scheduled(settings) as engine:
        yield engine


@pytest.fixture
def app(engine: Scheduled) -> Starlette:
    return make_app(engine, MockEngine("mock"))


async def refused(app: Starlette, path: str, body: Any, status: int = 400) -> dict[str, Any]:
    answer = await post(app, path, body)
    assert answer.status_code == status, answer.text
    check("ErrorResponse", answer.json())
    error: dict[str, Any] = answer.json()["error"]
    return error


def tokens(answer: httpx.Response) -> list[int]:
    assert answer.status_code == 200, answer.text
    ids: list[int] = answer.json()["tokens"]
    return ids


@pytest.mark.parametrize("path", ["/tokenize", "/v1/tokenize"])
async def test_a_prompt(app: Starlette, path: str) -> None:
    answer = await post(app, path, {"model": "counting", "prompt": "abc"})
    expected = {"count": 3, "max_model_len": 128, "tokens": [97, 98, 99], "token_strs": None}
    assert answer.json() == expected


async def test_a_chat_is_what_the_template_makes_of_it(app: Starlette) -> None:
    body = {"model": "counting", "messages": HI, "return_token_strs": True}
    answer = await post(app, "/tokenize", body)
    assert tokens(answer) == CHAT_IDS
    assert answer.json()["token_strs"] == [BOS, USER, "H", "i", END, ASSISTANT]


async def test_nothing_has_no_tokens(app: Starlette) -> None:
    answer = await post(app, "/tokenize", {"model": "counting", "prompt": ""})
    assert tokens(answer) == []


async def test_a_prompt_may_exceed_the_context(app: Starlette) -> None:
    answer = await post(app, "/tokenize", {"model": "counting", "prompt": "é" * 5000})
    assert answer.json()["count"] == 10_000


@pytest.mark.parametrize("path", ["/detokenize", "/v1/detokenize"])
async def test_ids_become_their_text(app: Starlette, path: str) -> None:
    for ids, text in (([*b"h\xc3\xa9", 257], f"hé{END}"), ([], "")):
        answer = await post(app, path, {"model": "counting", "tokens": ids})
        assert answer.json() == {"prompt": text}


async def test_a_chat_is_counted(app: Starlette) -> None:
    body = {"model": "counting", "messages": HI, "temperature": 0.5, "max_tokens": 3}
    answer = await post(app, "/v1/chat/completions/input_tokens", body)
    assert answer.json() == {"object": "response.input_tokens", "input_tokens": len(CHAT_IDS)}


async def test_the_only_model_need_not_be_named(engine: Scheduled) -> None:
    app = make_app(engine, Counting("vectors"))  # which generates nothing
    assert tokens(await post(app, "/tokenize", {"prompt": "a"})) == [97]
    assert tokens(await post(app, "/tokenize", {"messages": HI})) == CHAT_IDS
    assert (await post(app, "/detokenize", {"tokens": [97]})).json() == {"prompt": "a"}


@pytest.mark.parametrize(
    ("path", "body", "param"),
    [
        ("/tokenize", {"model": "counting"}, "prompt"),
        ("/tokenize", {"model": "counting", "prompt": ["a"]}, "prompt"),
        ("/tokenize", {"model": "counting", "prompt": "a", "messages": HI}, "prompt"),
        ("/tokenize", {"model": "counting", "prompt": "a", "add_special_tokens": 1}, None),
        ("/tokenize", {"model": "counting", "prompt": "a", "return_token_strs": "x"}, None),
        ("/tokenize", {"model": "counting", "prompt": "a", "other": 1}, "other"),
        ("/tokenize", {"model": "counting", "messages": []}, "messages"),
        ("/tokenize", {"model": "counting", "messages": HI, "add_special_tokens": 1}, None),
        ("/tokenize", {"prompt": "a"}, "model"),
        ("/tokenize", {"model": "mock", "prompt": "a"}, "model"),
        ("/detokenize", {"model": "counting"}, "tokens"),
        ("/detokenize", {"model": "counting", "tokens": [1, -1]}, "tokens[1]"),
        ("/detokenize", {"model": "counting", "tokens": [261]}, "tokens"),
        ("/detokenize", {"model": "counting", "tokens": [2**64]}, "tokens[0]"),
        ("/v1/chat/completions/input_tokens", {"messages": HI}, "model"),
        ("/v1/chat/completions/input_tokens", {"model": "mock", "messages": HI}, "model"),
    ],
)
async def test_mistakes_name_the_parameter(
    app: Starlette, path: str, body: dict[str, Any], param: str | None
) -> None:
    error = await refused(app, path, body)
    assert error["param"] == (param or error["param"])
    assert error["param"] is not None


async def test_an_unknown_model(app: Starlette) -> None:
    error = await refused(app, "/tokenize", {"model": "other", "prompt": "a"}, 404)
    assert error["code"] == "model_not_found"


async def test_a_key_is_needed(engine: Scheduled) -> None:
    app = make_app(engine, api_keys=["one"])
    await refused(app, "/tokenize", {"prompt": "a"}, 401)


async def test_what_clients_need_who_tokenize_by_themselves(app: Starlette) -> None:
    async with client(app) as http:
        answer = await http.get("/tokenizer_info", params={"model": "counting"})
    info = answer.json()
    assert (info["bos_token"], info["eos_token"]) == ("<|bos|>", "<|end|>")
    assert "messages" in info["chat_template"]
    assert (info["eos_token_ids"], info["vocab_size"]) == ([257], 261)
    assert info["model_max_length"] > 0


@pytest.mark.parametrize(("query", "status"), [("", 400), ("?model=mock", 400), ("?model=x", 404)])
async def test_of_which_tokenizer_must_be_clear(app: Starlette, query: str, status: int) -> None:
    async with client(app) as http:
        answer = await http.get(f"/tokenizer_info{query}")
    assert answer.status_code == status
    assert answer.json()["error"]["param"] == "model"
