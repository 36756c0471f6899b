"""Embeddings over HTTP: a tiny real model, and one without weights to hold up and to break."""

from __future__ import annotations

import asyncio
import struct
from base64 import b64decode
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest
import torch
from starlette.applications import Starlette
from transformers import AutoConfig, AutoModel

from configs.settings import AppSettings, ModelSettings
from deployments.door import Door
from deployments.ingress import create_app
from models.batched import Batched
from models.build import build_batched
from models.mock import MockEngine
from models.text.byte_tokenizer import byte_tokenizer
from tests.deployments.schemas import check
from tests.deployments.serving import (
    Exchange,
    Probes,
    chat,
    client,
    complete,
    eventually,
    listening,
    post,
)
from tests.models.tallying import TallyModel

PATH = "/v1/embeddings"
WIDTH, CONTEXT = 32, 64


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny BERT with random weights and a tokenizer of bytes."""
    folder = tmp_path_factory.mktemp("bert")
    torch.manual_seed(0)
    config = AutoConfig.for_model(
        "bert",
        vocab_size=261,
        hidden_size=WIDTH,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        max_position_embeddings=CONTEXT,
        initializer_range=0.3,
    )
    AutoModel.from_config(config).save_pretrained(folder)  # type: ignore[no-untyped-call]
    byte_tokenizer().save(str(folder / "tokenizer.json"))
    return folder


@pytest.fixture(scope="module")
def bert(folder: Path) -> Iterator[Batched]:
    embed = {"min_dimensions": 8}
    settings = {
        "name": "bert",
        "task": "embed",
        "source": str(folder),
        "embed": embed,
        "engine": {"dtype": "float32"},
    }
    model = build_batched(ModelSettings.model_validate(settings))
    yield model
    model.close()


@pytest.fixture
def tally() -> Iterator[Batched]:
    settings = {
        "name": "tally",
        "task": "embed",
        "factory": "tests.models.tallying:TallyModel",
        "engine": {"max_running": 1, "max_waiting": 0},
    }
    model = build_batched(ModelSettings.model_validate(settings))
    yield model
    inner(model).go.set()
    model.close()


def inner(model: Batched) -> TallyModel:
    made: Any = model.engine.batcher.model
    assert isinstance(made, TallyModel)
    return made


def make(*models: Batched, door: Door | None = None, **settings: Any) -> Starlette:
    engines = {model.name: model for model in models}
    listed = [{"name": "mock", "factory": "models.mock:MockEngine"}]
    given = AppSettings.model_validate({"models": listed, **settings})
    return create_app({"mock": MockEngine("mock"), **engines}, given, Probes(), door=door)


@pytest.mark.parametrize("key", ["request_id", "rid"])
async def test_operators_may_end_it_by_the_name_in_its_body(tally: Batched, key: str) -> None:
    door = Door()
    inner(tally).go.clear()
    app = make(tally, door=door)
    refused = await embed(app, "a", "tally", **{key: 1})
    assert (refused.status_code, refused.json()["error"]["param"]) == (400, key)
    asked = asyncio.create_task(embed(app, "a", "tally", **{key: "mine"}))
    await eventually(lambda: door.abort(frozenset({"mine"})) == 1)
    assert (await asked).status_code == 409


async def embed(app: Starlette, input: Any, model: str = "bert", **body: Any) -> httpx.Response:
    return await post(app, PATH, {"model": model, "input": input, **body})


def vectors(answer: httpx.Response) -> list[list[float]]:
    assert answer.status_code == 200, answer.text
    return [one["embedding"] for one in answer.json()["data"]]


def alone(folder: Path, text: str) -> torch.Tensor:
    model = AutoModel.from_pretrained(folder)
    with torch.inference_mode():
        hidden = model(input_ids=torch.tensor([list(text.encode())])).last_hidden_state
    return torch.nn.functional.normalize(hidden[0].mean(0), dim=0)


async def test_an_answer_is_openais_and_its_vectors_are_transformers(
    bert: Batched, folder: Path
) -> None:
    texts = ["abc", "something longer", "x"]
    answer = await embed(make(bert), texts, user="u")
    check("CreateEmbeddingResponse", answer.json())
    assert answer.json()["model"] == "bert"
    tokens = len("".join(texts))
    assert answer.json()["usage"] == {"prompt_tokens": tokens, "total_tokens": tokens}
    assert [one["index"] for one in answer.json()["data"]] == [0, 1, 2]
    expected = torch.stack([alone(folder, text) for text in texts])
    torch.testing.assert_close(torch.tensor(vectors(answer)), expected, atol=1e-5, rtol=1e-4)


async def test_all_forms_of_an_input_give_the_same_vector(bert: Batched) -> None:
    ids = list(b"abc")
    answers = [await embed(make(bert), form) for form in ("abc", ["abc"], ids, [ids])]
    assert all(vectors(answer) == vectors(answers[0]) for answer in answers)


async def test_many_inputs_come_back_in_order(bert: Batched) -> None:
    texts = [f"{number:03}" * (1 + number % 7) for number in range(100)]
    many = torch.tensor(vectors(await embed(make(bert), texts)))
    for number in (0, 41, 99):
        one = torch.tensor(vectors(await embed(make(bert), texts[number])))[0]
        torch.testing.assert_close(many[number], one, atol=1e-5, rtol=1e-4)


async def test_base64_holds_the_same_float32(bert: Batched) -> None:
    floats = vectors(await embed(make(bert), "abc"))[0]
    coded: Any = vectors(await embed(make(bert), "abc", encoding_format="base64"))[0]
    assert struct.unpack(f"<{WIDTH}f", b64decode(coded)) == struct.unpack(
        f"<{WIDTH}f", struct.pack(f"<{WIDTH}f", *floats)
    )


async def test_dimensions_are_cut_and_of_length_one_again(bert: Batched) -> None:
    whole = torch.tensor(vectors(await embed(make(bert), "abc"))[0])
    cut = torch.tensor(vectors(await embed(make(bert), "abc", dimensions=8))[0])
    torch.testing.assert_close(cut, torch.nn.functional.normalize(whole[:8], dim=0))
    assert len(vectors(await embed(make(bert), "abc", dimensions=WIDTH))[0]) == WIDTH


@pytest.mark.parametrize(
    ("body", "param", "code", "words"),
    [
        ({"dimensions": 7}, "dimensions", None, ["from 8 to 32", "not 7"]),
        ({"dimensions": 33}, "dimensions", None, ["from 8 to 32", "not 33"]),
        ({"input": "x" * 65}, "input", "context_length_exceeded", ["64", "65"]),
        ({"input": ["a", "x" * 70]}, "input", "context_length_exceeded", ["input[1]", "64", "70"]),
        ({"input": [[1], [261]]}, "input[1]", None, ["261"]),
        ({"truncate_prompt_tokens": 65}, "truncate_prompt_tokens", None, ["65", "64"]),
        ({"encoding_format": "hex"}, "encoding_format", "invalid_value", ["float"]),
    ],
)
async def test_what_is_wrong_is_told(
    bert: Batched, body: dict[str, Any], param: str, code: str | None, words: list[str]
) -> None:
    answer = await post(make(bert), PATH, {"model": "bert", "input": "x", **body})
    assert answer.status_code == 400
    check("ErrorResponse", answer.json())
    error = answer.json()["error"]
    assert (error["param"], error["code"]) == (param, code)
    assert all(word in error["message"] for word in words)


async def test_an_input_may_be_truncated_instead(bert: Batched) -> None:
    cut = await embed(make(bert), "x" * 99 + "y", truncate_prompt_tokens=-1)
    assert cut.json()["usage"]["prompt_tokens"] == CONTEXT
    assert vectors(cut) == vectors(await embed(make(bert), "x" * CONTEXT))
    short = await embed(make(bert), "abcdef", truncate_prompt_tokens=3)
    assert vectors(short) == vectors(await embed(make(bert), "abc"))


async def test_each_route_is_for_models_that_can_do_it(bert: Batched) -> None:
    app = make(bert)
    answers = {
        "makes embeddings": await chat(app, model="bert"),
        "use /v1/embeddings": await complete(app, model="bert"),
        "generates text": await embed(app, "x", model="mock"),
    }
    for words, answer in answers.items():
        assert answer.status_code == 400
        check("ErrorResponse", answer.json())
        error = answer.json()["error"]
        assert (error["param"], error["code"]) == ("model", "unsupported_model")
        assert words in error["message"]
    assert (await embed(app, "x", model="other")).status_code == 404


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/responses", {"input": "x"}),
        ("/v1/messages", {"messages": [{"role": "user", "content": "x"}], "max_tokens": 1}),
        ("/tokenize", {"prompt": "x"}),
    ],
)
async def test_it_answers_in_no_other_dialect(
    tally: Batched, path: str, body: dict[str, Any]
) -> None:
    answer = await post(make(tally), path, {"model": "tally", **body})
    assert answer.status_code == 400
    assert "use /v1/embeddings" in answer.json()["error"]["message"]


async def test_models_of_all_kinds_are_listed(bert: Batched) -> None:
    async with client(make(bert)) as http:
        listed = (await http.get("/v1/models")).json()
    check("ListModelsResponse", listed)
    found = {one["id"]: (one["task"], one["max_model_len"]) for one in listed["data"]}
    assert found == {"mock": ("generate", 4096), "bert": ("embed", CONTEXT)}


async def test_a_model_that_fails_is_a_500_in_its_own_words(tally: Batched) -> None:
    answer = await embed(make(tally), "!", model="tally")
    assert answer.status_code == 500
    assert "this token is cursed" in answer.json()["error"]["message"]


async def test_a_busy_model_is_a_503_with_the_wait(tally: Batched) -> None:
    inner(tally).go.clear()
    app = make(tally)
    first = asyncio.create_task(embed(app, "a", model="tally"))
    await eventually(lambda: inner(tally).batches)
    answer = await embed(app, "b", model="tally")
    assert answer.status_code == 503
    assert int(answer.headers["retry-after"]) >= 1
    inner(tally).go.set()
    assert vectors(await first) == [[1, 0, 0, 0]]


async def test_a_silent_model_is_a_504(tally: Batched) -> None:
    inner(tally).go.clear()
    answer = await embed(make(tally, request_timeout_s=0.05), "a", model="tally")
    assert answer.status_code == 504
    assert tally.engine.admission.running == 0


async def test_a_client_that_leaves_takes_its_inputs_along(tally: Batched) -> None:
    inner(tally).go.clear()
    body = {"model": "tally", "input": ["a"] * 500}
    exchange = Exchange(make(tally), PATH, body)
    await eventually(lambda: inner(tally).batches)
    await exchange.leave()
    assert tally.engine.admission.running == 0
    inner(tally).go.set()
    assert vectors(await embed(make(tally), "b", model="tally")) == [[0, 1, 0, 0]]
    assert len(inner(tally).batches) == 2


def test_the_official_client(bert: Batched) -> None:
    with listening(make(bert)) as url, openai.OpenAI(base_url=f"{url}/v1", api_key="x") as sdk:
        usual = sdk.embeddings.create(model="bert", input=["abc", "de"])  # asks for base64
        floats = sdk.embeddings.create(model="bert", input=["abc", "de"], encoding_format="float")
        for one, other in zip(usual.data, floats.data, strict=True):
            assert one.embedding == pytest.approx(other.embedding, abs=1e-6)
        assert usual.usage.prompt_tokens == 5
        cut = sdk.embeddings.create(model="bert", input=[1, 2, 3], dimensions=8)
        assert len(cut.data[0].embedding) == 8
        with pytest.raises(openai.BadRequestError, match="generates text"):
            sdk.embeddings.create(model="mock", input="abc")
        assert [model.id for model in sdk.models.list()] == ["mock", "bert"]
